"""Programs that run a suite in its own environment; they import nothing of this project but each other."""
