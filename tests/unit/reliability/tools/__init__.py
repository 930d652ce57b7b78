"""Tests of `reliability/tools`."""
