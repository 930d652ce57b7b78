"""Tests of `deployments/evaluate/asking`."""
