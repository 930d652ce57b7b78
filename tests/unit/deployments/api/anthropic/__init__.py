"""Tests of `deployments/api/anthropic`."""
