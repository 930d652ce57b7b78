"""Where the server listens: HAProxy or uvicorn, with bounds on slow clients."""
