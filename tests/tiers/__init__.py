"""The tier kinds, and the one contract that all of them pass."""
