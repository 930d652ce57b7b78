"""Finding and starting the monitors: one per node, by name.

Whoever needs the monitor of its own node asks for it with `here`, which starts it where it isn't there: tier replicas
and Router replicas alike, in any order and at the same time (`get_if_exists`: one of them makes it, all get it). It is
pinned to the node (`soft=False`), detached from its maker, restarted by Ray when its process dies, and it takes no CPU
from the scheduler. Where a node dies its monitor is gone with it, and nobody starts it elsewhere.

The calls here wait for Ray's control service, some milliseconds each: on a thread, never on the way of a request.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import ray
from ray.util import list_named_actors
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from deployments.memory.monitor import MemoryPressure
from deployments.memory.plan import NAMESPACE, MonitorSettings, monitor_name, name_prefix
from deployments.running.actor_calls import call_actor

__all__ = ["find", "here", "on"]


def here(app: str, settings: MonitorSettings) -> Any:
    """Return the handle of this node's monitor, which is started if need be."""
    return on(ray.get_runtime_context().get_node_id(), app, settings)


def on(node_id: str, app: str, settings: MonitorSettings) -> Any:
    """Return the handle of a node's monitor, which is started if need be. Raises what Ray
    raises."""
    name = monitor_name(app, settings, node_id)
    # Found before made: `get_if_exists` alone leaves some functions behind in this process at each call.
    with contextlib.suppress(ValueError):
        return ray.get_actor(name, namespace=NAMESPACE)
    options = {
        "name": name,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "num_cpus": 0,
        "max_restarts": -1,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
    }
    return call_actor(_make_actor_class().options(**options).remote, settings)


@functools.cache
def _make_actor_class() -> Any:
    """Make Ray's class for the actor. Each call of `ray.remote` makes a new one, some 40 KB that
    are never freed."""
    return ray.remote(MemoryPressure)


def find(app: str, settings: MonitorSettings | None = None) -> dict[str, Any]:
    """Find the handles of the application's monitors by their names: those with these settings, or
    all. A monitor that is just going may be missing or be in it; its calls then fail.

    Raises:
        ConnectionError: this process is in no Ray. Ray's own calls would start one here, and end the process where
            it doesn't come up.
    """
    if not ray.is_initialized():
        raise ConnectionError("this process is connected to no Ray")
    prefix = name_prefix(app) + (f"{settings.digest}-" if settings else "")
    found: dict[str, Any] = {}
    for actor in list_named_actors(all_namespaces=True):
        name = actor["name"]
        if actor["namespace"] == NAMESPACE and name.startswith(prefix):
            try:
                found[name] = ray.get_actor(name, namespace=NAMESPACE)
            except ValueError:  # it went between the two calls
                continue
    return found
