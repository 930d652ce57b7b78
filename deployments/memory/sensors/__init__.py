"""What a machine says of its memory, by system."""
