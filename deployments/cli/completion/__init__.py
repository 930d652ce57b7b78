"""`mlx-stack-serve completion`: what completes the program in bash, zsh and fish."""
