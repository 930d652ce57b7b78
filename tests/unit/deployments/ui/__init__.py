"""Tests of `deployments/ui`."""
