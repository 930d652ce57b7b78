"""Where the server and its replicas listen, as Ray Serve (2.60) keeps it to itself: docs/decisions/081.

Invariants: where Serve doesn't say its host nothing is served without keys; where a later Ray binds a replica's port in
another way the replica fails at its start, and doesn't listen to other machines.
"""

from __future__ import annotations

from typing import Any

from deployments.config.config_errors import ConfigError

ALL = "[::]:"
REQUEST_ID_CHARS_MAX = 128


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


def bind_to_node() -> None:
    """Let this process's replica listen for calls on its node's address alone. Call it in the replica's `__init__`:
    Serve (`ray/serve/_private/replica.py`) binds the port to all interfaces, without an option, once its class is
    made."""
    import ray
    from ray._common.tls_utils import add_port_to_grpc_server
    from ray.serve._private import replica

    host = ray.util.get_node_ip_address()
    own = f"[{host}]:" if ":" in host else f"{host}:"

    def add_own_port(server: Any, address: str) -> Any:
        return add_port_to_grpc_server(server, own + address.removeprefix(ALL) if address.startswith(ALL) else address)

    if not hasattr(replica, "add_port_to_grpc_server"):
        raise RuntimeError("this Ray binds a replica's port in another way: a Ray of 2.60 is needed")
    replica.add_port_to_grpc_server = add_own_port


def is_request_id(given: str) -> bool:
    """Tell whether a client may name its request so: printable ASCII on one line of a log, and not much of it."""
    return given.isascii() and given.isprintable() and 0 < len(given) <= REQUEST_ID_CHARS_MAX
