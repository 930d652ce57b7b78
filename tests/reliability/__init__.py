"""Laws of the core, with Hypothesis."""
