"""Tests of `deployments/evaluate/calls`."""
