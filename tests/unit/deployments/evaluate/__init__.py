"""Tests of `deployments/evaluate`."""
