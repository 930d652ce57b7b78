"""Tests of `deployments/memory/sensors`."""
