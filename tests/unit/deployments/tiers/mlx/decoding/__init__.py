"""Tests of `deployments/tiers/mlx/decoding`."""
