"""Load and speed, measured: benchmarks that print their figures or write them into README.md. No test runs them."""
