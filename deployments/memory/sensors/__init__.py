"""What a machine reports of its memory, by system."""
