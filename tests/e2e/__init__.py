"""The shipped configuration with the real model, started as a person starts it."""
