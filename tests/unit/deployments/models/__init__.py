"""Tests of `deployments/models`."""
