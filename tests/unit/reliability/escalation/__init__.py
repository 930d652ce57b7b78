"""Tests of `reliability/escalation`."""
