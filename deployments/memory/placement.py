"""How many bytes of Ray's `memory` resource each tier's replicas ask for, to be placed where they fit.

Ray counts this resource and enforces nothing, and a replica that asks for more than any node has stays pending for
ever, without a word to a client. So nothing may be asked for that can't be had: what the minimums need together must
fit into the nodes' resources, else no tier asks and the leases alone decide (the line in the log says so). Replicas
above the minimum that find no node stay pending, and that is meant.

Ray's default for the resource is about 70 % of a node's free memory at its start; `ray start --memory BYTES` sets it.
"""

from __future__ import annotations

from collections.abc import Sequence

import ray

from deployments.memory.plan import TierNeed
from deployments.telemetry import log_info

__all__ = ["fit_minimums", "plan_memory_resources"]


def plan_memory_resources(needs: Sequence[TierNeed]) -> dict[str, int]:
    """Return the bytes that each tier asks for, on the cluster that this process is in; nothing is
    known outside of one."""
    wanted = {need.name: need.replica_bytes for need in needs if need.local and need.replica_bytes}
    if not ray.is_initialized():
        return wanted
    nodes_bytes = [int(node["Resources"].get("memory", 0)) for node in ray.nodes() if node["Alive"]]
    placed = fit_minimums(needs, nodes_bytes)
    if wanted and not placed:
        log_info("memory_not_asked_of_ray", wanted_bytes=sum(wanted.values()), nodes_bytes=sum(nodes_bytes))
    return placed


def fit_minimums(needs: Sequence[TierNeed], nodes_bytes: Sequence[int]) -> dict[str, int]:
    """Return what the tiers ask for where all their minimums fit into nodes of so many bytes; else
    nothing.

    Largest first, each on the node with the most bytes left: where that finds no place, Ray's
    scheduler may not either.
    """
    wanted = {need.name: need.replica_bytes for need in needs if need.local and need.replica_bytes}
    least: list[int] = []
    for need in needs:
        if need.local and need.replica_bytes:  # a tier that is scaled to zero must be able to start
            least += [need.replica_bytes] * max(1, need.replicas_min)
    left = sorted(nodes_bytes)
    for one in sorted(least, reverse=True):
        if not left or left[-1] < one:
            return {}
        left[-1] -= one
        left.sort()
    return wanted
