"""Unit tests of deployments/api/openapi."""
