"""Prompts' keys and values on disk, where they outlive the process that computed them."""
