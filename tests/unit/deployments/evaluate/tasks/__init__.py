"""Tests of `deployments/evaluate/tasks`."""
