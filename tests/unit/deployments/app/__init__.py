"""Tests of `deployments/app`."""
