"""Tests of `deployments/request`."""
