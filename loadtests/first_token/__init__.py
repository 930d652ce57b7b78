"""Where the milliseconds between a client's socket and the engine go."""
