"""A scripted Mac, behind the seams where the server asks macOS: what it would do to a person's first day."""
