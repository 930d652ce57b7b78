"""Tests of `reliability/tools/schema`."""
