"""Tests of `reliability/sessions`."""
