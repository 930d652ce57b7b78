"""How the server is started, kept and stopped, without Ray."""
