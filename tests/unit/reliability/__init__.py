"""Tests of `reliability`."""
