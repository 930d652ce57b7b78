"""Tests of `deployments/cli`."""
