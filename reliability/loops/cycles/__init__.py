"""Text that repeats itself, as text alone: cycles of any length, and how many copies are too many in a call."""
