"""The API described: `/openapi.json` from one table of all routes, and `/docs`, its page in a browser."""
