"""Tests of `deployments/api/openai_responses`."""
