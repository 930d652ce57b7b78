"""Tests of `reliability/tools/extract`."""
