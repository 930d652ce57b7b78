"""Where Ray Serve listens.

Serve has no public call for its host: `find_serving_host` reads it from the client that Serve has connected, and
refuses to guess (docs/decisions/081).
"""

from __future__ import annotations

from deployments.config.config_errors import ConfigError


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
