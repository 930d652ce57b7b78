"""Tests of `deployments/tiers/mlx`."""
