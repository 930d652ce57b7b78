"""Tests of `reliability/memory`."""
