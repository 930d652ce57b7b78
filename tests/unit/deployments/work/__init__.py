"""Tests of `deployments/work`."""
