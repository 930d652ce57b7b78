"""How many bytes of Ray's `memory` resource each tier's replicas ask for, so that Ray places them where there is room.

Ray counts this resource and enforces nothing, and a replica that asks for more than any node has stays pending for
ever, without a word to a client. So nothing may be asked for that can't be had: what the minimums need together must
fit into the nodes' resources, else no tier asks and the leases alone decide (the line in the log says so). Replicas
above the minimum that find no room stay pending, and that is meant.

Ray's default for the resource is about 70 % of a node's free memory at its start; `ray start --memory BYTES` sets it.
"""

from __future__ import annotations

from collections.abc import Sequence

import ray

from deployments.memory.plan import TierNeed
from deployments.telemetry import log_info

__all__ = ["asks_within", "memory_asks"]


def memory_asks(needs: Sequence[TierNeed]) -> dict[str, int]:
    """The bytes that each tier asks for, on the cluster that this process is in; nothing is known outside of one."""
    wanted = {need.name: need.replica_bytes for need in needs if need.local and need.replica_bytes}
    if not ray.is_initialized():
        return wanted
    room = [int(node["Resources"].get("memory", 0)) for node in ray.nodes() if node["Alive"]]
    asks = asks_within(needs, room)
    if wanted and not asks:
        log_info("memory_not_asked_of_ray", wanted_bytes=sum(wanted.values()), nodes_bytes=sum(room))
    return asks


def asks_within(needs: Sequence[TierNeed], room_bytes: Sequence[int]) -> dict[str, int]:
    """What the tiers ask for where all their minimums can be placed on nodes with so much room; else nothing.

    Largest first, each on the node with the most room left: where that finds no place, Ray's scheduler may not either.
    """
    asks = {need.name: need.replica_bytes for need in needs if need.local and need.replica_bytes}
    least = [
        need.replica_bytes
        for need in needs
        if need.local and need.replica_bytes
        for _ in range(max(1, need.replicas_min))  # a tier that sleeps must be able to wake
    ]
    left = sorted(room_bytes)
    for one in sorted(least, reverse=True):
        if not left or left[-1] < one:
            return {}
        left[-1] -= one
        left.sort()
    return asks
