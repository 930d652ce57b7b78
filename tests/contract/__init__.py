"""The server over a real socket, with the real openai client, on a real Ray instance."""
