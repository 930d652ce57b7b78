"""The scoreboard: other people's tests, run on the same weights behind other people's layers and behind this server."""
