"""Tests of `reliability/admission`."""
