"""Tests of `deployments/api/forms`."""
