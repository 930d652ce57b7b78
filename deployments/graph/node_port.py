"""A replica's own port, on its node's address alone: docs/decisions/081.

Invariant: where a later Ray binds it in another way the replica fails at its start, and doesn't listen to other
machines.
"""

from __future__ import annotations

from typing import Any

import ray
from ray._common.tls_utils import add_port_to_grpc_server
from ray.serve._private import replica

ALL = "[::]:"


def bind_to_node() -> None:
    """Let this process's replica listen for calls on its node's address alone. Call it in the replica's `__init__`:
    Serve (`ray/serve/_private/replica.py`) binds the port to all interfaces, without an option, once its class is
    made."""
    host = ray.util.get_node_ip_address()
    own = f"[{host}]:" if ":" in host else f"{host}:"

    def add_own_port(server: Any, address: str) -> Any:
        return add_port_to_grpc_server(server, own + address.removeprefix(ALL) if address.startswith(ALL) else address)

    if not hasattr(replica, "add_port_to_grpc_server"):
        raise RuntimeError("this Ray binds a replica's port in another way: a Ray of 2.60 is needed")
    replica.add_port_to_grpc_server = add_own_port
