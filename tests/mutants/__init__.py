"""Small sabotages of the core, each of which a test must notice: `make mutants`."""
