"""Tests of `deployments/evaluate/figures`."""
