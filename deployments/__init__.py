"""The shell: everything that touches Ray, HTTP, MLX, disk or a clock. It imports `reliability`, never the reverse."""

__version__ = "0.1.0"  # here, and not read from what is installed: a checkout runs that never was, or was long ago
