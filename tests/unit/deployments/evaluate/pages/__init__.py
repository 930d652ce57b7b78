"""Tests of `deployments/evaluate/pages`."""
