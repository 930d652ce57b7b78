"""What MLX computes slowly on a processor without a GPU, and this server faster."""
