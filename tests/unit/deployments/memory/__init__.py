"""Tests of `deployments/memory`."""
