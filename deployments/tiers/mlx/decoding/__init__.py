"""The engine's own decoding: many sequences in one step, each of another length, with guesses verified in it."""
