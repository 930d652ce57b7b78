"""Tests of `deployments/tiers`."""
