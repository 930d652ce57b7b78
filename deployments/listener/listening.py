"""Where the server listens, as Ray Serve (2.60) keeps it to itself, and what it lets a request be named:
docs/decisions/081.

Invariant: where Serve doesn't say its host nothing is served without keys.
"""

from __future__ import annotations

from deployments.config.config_errors import ConfigError

_REQUEST_ID_CHARS_MAX = 128


def find_serving_host() -> str | None:
    """Find the host that Serve's proxies listen on; None where no Serve runs yet, so that nothing listens. Raises
    ConfigError: Serve runs and doesn't say; where nobody knows, nothing may be served."""
    import ray  # not with the module: who only asks about a host needs no Ray

    if not ray.is_initialized():
        return None
    try:
        from ray.serve.context import _get_global_client

        client = _get_global_client(raise_if_no_controller_running=False)
        # "" stands for a host that Serve doesn't name: it is not loopback, and not None either.
        return None if client is None else str(client.http_config.host or "")
    except Exception as error:
        words = f"can't find out where Ray Serve listens ({type(error).__name__}); configure API keys"
        raise ConfigError(f"server.api_keys_file: {words}") from error


def is_request_id(given: str) -> bool:
    """Tell whether a client may name its request so: printable ASCII on one line of a log, and not much of it."""
    return given.isascii() and given.isprintable() and 0 < len(given) <= _REQUEST_ID_CHARS_MAX
