"""Tests of `deployments/tiers/mlx/grammar`."""
