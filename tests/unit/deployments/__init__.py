"""Tests of `deployments`."""
