"""The shell: everything that touches Ray, HTTP, MLX, disk or a clock. It imports `reliability`, never the reverse."""
