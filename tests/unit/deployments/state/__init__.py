"""Tests of `deployments/state`."""
