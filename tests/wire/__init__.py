"""Requests in and answers out, without a server."""
