"""The reliability core: pure decisions over frozen values. No Ray, no network, no files, no clock, no dice."""
