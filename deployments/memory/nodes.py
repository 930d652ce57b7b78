"""The nodes: finding and starting their monitors by name, and what tiers ask of Ray to be placed on them.

The calls wait for Ray's control service: on a thread, never on the way of a request. Ray counts its `memory` resource
and enforces nothing, and a replica that asks for more than any node has stays pending for ever. So unless the nodes
hold all minimums together, no tier asks, the log says so, and the leases alone decide.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import ray
from ray.util import list_named_actors
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from deployments.memory.monitor import MemoryPressure
from deployments.memory.plan import MonitorSettings, TierNeed
from deployments.running.actor_calls import NAMESPACE, start_actor
from deployments.telemetry import log_info

# Counts up whenever the actor's methods or its reports change, so that old and new code never meet in one actor.
_SCHEMA = 2


def here(app: str, settings: MonitorSettings) -> Any:
    """Return the handle of this node's monitor, which is started if need be. Raises what Ray raises."""
    node_id = ray.get_runtime_context().get_node_id()
    name = f"{_begin_names(app)}{settings.digest}-{node_id}"
    # Found before made: `get_if_exists` alone leaves some functions behind in this process at each call.
    with contextlib.suppress(ValueError):
        return ray.get_actor(name, namespace=NAMESPACE)
    options = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}
    return start_actor(MemoryPressure, name, options, settings)


def _begin_names(app: str) -> str:
    return f"MemoryPressure-v{_SCHEMA}-{app}-"


def find(app: str, settings: MonitorSettings | None = None) -> dict[str, Any]:
    """Find the handles of the application's monitors by their names: those with these settings, or all. Raises
    ConnectionError: this process is in no Ray, and Ray's own calls would start one here."""
    if not ray.is_initialized():
        raise ConnectionError("this process is connected to no Ray")
    prefix = _begin_names(app) + (f"{settings.digest}-" if settings else "")
    found: dict[str, Any] = {}
    for actor in list_named_actors(all_namespaces=True):
        name = actor["name"]
        if actor["namespace"] == NAMESPACE and name.startswith(prefix):
            with contextlib.suppress(ValueError):  # it went between the two calls
                found[name] = ray.get_actor(name, namespace=NAMESPACE)
    return found


def plan_memory_resources(needs: Sequence[TierNeed]) -> dict[str, int]:
    """Return the bytes that each tier asks for, on the cluster of this process; unchecked outside of one."""
    wanted = {need.name: need.replica_bytes for need in needs if need.local and need.replica_bytes}
    if not ray.is_initialized():
        return wanted
    nodes_bytes = [int(node["Resources"].get("memory", 0)) for node in ray.nodes() if node["Alive"]]
    if _fit_minimums(needs, nodes_bytes):
        return wanted
    log_info("memory_not_asked_of_ray", wanted_bytes=sum(wanted.values()), nodes_bytes=sum(nodes_bytes))
    return {}


def _fit_minimums(needs: Sequence[TierNeed], nodes_bytes: Sequence[int]) -> bool:
    """Return whether all minimums of the tiers fit into nodes of so many bytes. Largest first, each on the node with
    the most bytes left: where that finds no place, Ray's scheduler may not either."""
    least: list[int] = []
    for need in needs:
        if need.local and need.replica_bytes:  # a tier that is scaled to zero must be able to start
            least += [need.replica_bytes] * max(1, need.replicas_min)
    left = sorted(nodes_bytes)
    for one in sorted(least, reverse=True):
        if not left or left[-1] < one:
            return False
        left[-1] -= one
        left.sort()
    return True
