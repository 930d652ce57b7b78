"""Tests of `deployments/tiers/mlx/prompt_cache`."""
