"""The server over a real socket, with real clients: in one process, and on Ray what only Ray does."""
