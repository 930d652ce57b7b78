"""What a tier does on a GPU and nowhere else: fused attention for wide heads, wired memory, the size of a chunk."""
