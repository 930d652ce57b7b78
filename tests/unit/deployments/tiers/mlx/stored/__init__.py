"""Tests of `deployments/tiers/mlx/stored`."""
