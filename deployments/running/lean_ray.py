"""Start Ray without the processes that only watch it: dashboard, log monitor, autoscaler monitor (docs/decisions/002).

`ray.init` has no option for them, so the methods that start them are replaced meanwhile. If a later Ray lacks these
methods, it starts more processes, and the server works all the same.
"""

from __future__ import annotations

import contextlib
from typing import Any

import ray
from ray._private import ray_constants
from ray._private.node import Node

from deployments.config.free_port import DASHBOARD_PORT

LEFT_OUT = ("start_monitor", "start_log_monitor", "start_api_server")


def start_ray(**options: Any) -> Any:
    """Start Ray on this machine; return its context. `options` are `ray.init`'s."""
    replaced = {name: getattr(Node, name) for name in LEFT_OUT if hasattr(Node, name)}
    for name in replaced:
        setattr(Node, name, _note_address if name == "start_api_server" else _start_nothing)
    try:
        return ray.init(**options)
    finally:
        for name, method in replaced.items():
            setattr(Node, name, method)


def describe_ray(context: Any) -> dict[str, str]:
    """Describe the Ray that runs here, as another process needs it to be its dashboard."""
    known = context.address_info
    names = ("gcs_address", "node_ip_address", "session_dir")
    return {name: str(known[name]) for name in names} | {
        "cluster_id": ray._private.worker._global_node.cluster_id.hex()
    }


def _start_nothing(_: Node, **__: Any) -> None:
    """Start nothing."""


def _note_address(node: Node, **_: Any) -> None:
    """Note where the dashboard would be. Ray's agent asks for it every second, and logs a stack, until it is told."""
    with contextlib.suppress(Exception):
        node.get_gcs_client().internal_kv_put(
            ray_constants.DASHBOARD_ADDRESS.encode(),
            f"127.0.0.1:{DASHBOARD_PORT}".encode(),
            True,
            ray_constants.KV_NAMESPACE_DASHBOARD,
        )
