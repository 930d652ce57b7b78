"""The load tests' own measuring and judging."""
