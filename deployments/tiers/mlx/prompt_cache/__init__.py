"""Keep the keys and values of computed prompts: in memory, and on disk, where they outlive their process."""
