"""Tests of `reliability/tools/check`."""
