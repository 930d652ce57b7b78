"""Tests of `deployments/listener`."""
