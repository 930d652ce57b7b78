"""Tests of `loadtests`."""
