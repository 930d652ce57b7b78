"""Tests of `deployments/config`."""
