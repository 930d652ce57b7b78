"""Tests of `deployments/tiers/scripted`."""
