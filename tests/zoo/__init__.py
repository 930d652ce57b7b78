"""The zoo: each architecture of mlx-lm with random weights, on the engine and on plain mlx-lm."""
