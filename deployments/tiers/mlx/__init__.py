"""The tier kind `mlx`: a model in this process, by mlx-lm."""
