"""Tests of `reliability/answer`."""
