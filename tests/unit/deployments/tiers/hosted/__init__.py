"""Tests of `deployments/tiers/hosted`."""
