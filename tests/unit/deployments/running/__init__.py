"""Tests of `deployments/running`."""
