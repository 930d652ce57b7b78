"""Tests of `reliability/loops`."""
