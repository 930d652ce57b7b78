"""Tests of `deployments/graph`."""
