"""The server as a service."""
