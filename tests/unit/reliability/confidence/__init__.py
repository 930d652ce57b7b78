"""Tests of `reliability/confidence`."""
