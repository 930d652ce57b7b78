"""Tests of `deployments/reports`."""
