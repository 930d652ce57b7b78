"""How many replicas of each tier a node's memory holds.

First every tier's minimum, smallest replicas first; then growth, highest priority first. The longest head of that line
that fits may run, and nothing overtakes, so more memory never means fewer replicas. At warn, unknown or with no known
budget no tier grows; at critical every tier shrinks to its minimum.

Invariants: no sum of bytes above the budget; no minimum is cut while all minimums fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reliability.memory.pressure import Level

_REPLICAS_MAX = 1024  # of one tier; more is a mistake in the configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a tier wants. `replica_bytes` holds the weights and the KV cache of one replica."""

    name: str
    replica_bytes: int
    replicas_min: int
    replicas_wanted: int
    replicas_now: int
    priority: int = 0  # the higher, the earlier it grows


@dataclass(frozen=True, slots=True)
class Fit:
    """How many replicas a tier may have, and why not all that it wants (empty: it gets them all)."""

    name: str
    replicas: int
    why: str


def replicas_that_fit(demands: Sequence[Demand], budget_bytes: int | None, level: Level) -> tuple[Fit, ...]:
    """Return the cap of each tier, in the order of `demands`."""
    held = _count_fitting(demands, budget_bytes)
    return tuple(_cap_replicas(demand, held[demand.name], budget_bytes, level) for demand in demands)


def _count_fitting(demands: Sequence[Demand], budget_bytes: int | None) -> dict[str, int]:
    """Count what memory alone allows: all, with no known budget; the level then allows no growth."""
    if budget_bytes is None:
        return {demand.name: _count_wanted(demand) for demand in demands}
    held = {demand.name: 0 for demand in demands}
    free_bytes = budget_bytes
    for demand in _order_replicas(demands):
        free_bytes -= max(0, demand.replica_bytes)
        if free_bytes < 0:
            break
        held[demand.name] += 1
    return held


def _order_replicas(demands: Sequence[Demand]) -> Iterator[Demand]:
    """Yield one entry for each replica, in the order in which they get memory."""
    for demand in sorted(demands, key=lambda d: (d.replica_bytes, -d.priority, d.name)):
        yield from [demand] * _count_minimum(demand)
    for demand in sorted(demands, key=lambda d: (-d.priority, d.replica_bytes, d.name)):
        yield from [demand] * (_count_wanted(demand) - _count_minimum(demand))


def _cap_replicas(demand: Demand, held: int, budget_bytes: int | None, level: Level) -> Fit:
    wanted, now = _count_wanted(demand), max(0, demand.replicas_now)
    if held < wanted and budget_bytes is not None:
        why = f"{wanted} x {demand.replica_bytes} bytes wanted, {held} fit beside the others in {budget_bytes}"
    else:
        why = ""
    if level is Level.CRITICAL and held > min(now, _count_minimum(demand)):
        return Fit(demand.name, min(now, _count_minimum(demand)), "memory is critical: only the minimum stays")
    if (level is not Level.NORMAL or budget_bytes is None) and held > now:
        known = "unknown" if budget_bytes is None else level.value
        return Fit(demand.name, now, f"memory is {known}: nothing grows")
    return Fit(demand.name, held, why)


def _count_minimum(demand: Demand) -> int:
    return min(max(0, demand.replicas_min), _REPLICAS_MAX)


def _count_wanted(demand: Demand) -> int:
    return min(max(demand.replicas_wanted, _count_minimum(demand)), _REPLICAS_MAX)
