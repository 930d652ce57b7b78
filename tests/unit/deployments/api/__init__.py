"""Tests of `deployments/api`."""
