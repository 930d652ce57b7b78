"""Leases on the bytes of one node: who may load a model now, who waits, and who never will.

A replica asks before it loads (`acquire`), reports that it is still there (`renew`) and gives the bytes back
(`release`); a lease that isn't renewed for `ttl_ns` is gone. The answer is granted, not now, or never (it is more than
the whole budget). A renewal reports what is in memory already, so it always counts.

Invariants: no grant takes the sum above the budget; no lease outlives its last renewal by more than `ttl_ns`; nobody
waits who asks no more, and nobody waits for the sake of a larger wish (`reliability.memory.replicas` decides that).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reliability.memory.pressure import Level

HOLDERS_MAX = 1024  # holders, and waiting ones; more is a mistake somewhere


@dataclass(frozen=True, slots=True)
class Lease:
    """Bytes held, or waited for. `since_ns`: from when on. `why`: why it waits."""

    tier: str
    bytes: int
    since_ns: int
    expires_ns: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Leases:
    """The leases that are held and those that are waited for, by holder."""

    held: Mapping[str, Lease] = field(default_factory=dict)
    waiting: Mapping[str, Lease] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeaseAnswer:
    """The answer to `acquire`. `never`: asking again is of no use. `why`: empty where granted."""

    granted: bool
    never: bool = False
    why: str = ""


def acquire(
    leases: Leases,
    holder: str,
    tier: str,
    wanted_bytes: int,
    *,
    budget_bytes: int | None,
    level: Level,
    ttl_ns: int,
    now_ns: int,
) -> tuple[Leases, LeaseAnswer]:
    """Ask for bytes. A holder that asks again asks for its bytes anew: what it held doesn't stand against it."""
    leases = expire(leases, now_ns)
    held = _without(leases.held, holder)
    waiting = _without(leases.waiting, holder)
    answer = _answer(replace(leases, held=held), wanted_bytes, budget_bytes, level)
    since = leases.waiting.get(holder) or leases.held.get(holder)
    lease = Lease(tier, max(0, wanted_bytes), since.since_ns if since else now_ns, now_ns + ttl_ns, answer.why)
    if answer.granted:
        return Leases({**held, holder: replace(lease, since_ns=now_ns)}, waiting), answer
    if len(waiting) < HOLDERS_MAX:
        waiting = {**waiting, holder: lease}
    return Leases(held, waiting), answer


def renew(leases: Leases, holder: str, tier: str, held_bytes: int, *, ttl_ns: int, now_ns: int) -> Leases:
    """Renew a lease: the holder is still there with these bytes."""
    leases = expire(leases, now_ns)
    known = leases.held.get(holder)
    if known is None and len(leases.held) >= HOLDERS_MAX:
        return leases
    lease = Lease(tier, max(0, held_bytes), known.since_ns if known else now_ns, now_ns + ttl_ns)
    return Leases({**leases.held, holder: lease}, _without(leases.waiting, holder))


def release(leases: Leases, holder: str) -> Leases:
    """Drop a lease: the holder has freed its bytes, or doesn't want any more."""
    return Leases(_without(leases.held, holder), _without(leases.waiting, holder))


def expire(leases: Leases, now_ns: int) -> Leases:
    """Drop the leases that weren't renewed in time."""
    return Leases(
        {name: lease for name, lease in leases.held.items() if now_ns < lease.expires_ns},
        {name: lease for name, lease in leases.waiting.items() if now_ns < lease.expires_ns},
    )


def _answer(leases: Leases, wanted_bytes: int, budget_bytes: int | None, level: Level) -> LeaseAnswer:
    if len(leases.held) >= HOLDERS_MAX:
        return LeaseAnswer(False, why=f"{HOLDERS_MAX} replicas hold leases already")
    if wanted_bytes <= 0:
        return LeaseAnswer(True)
    if budget_bytes is not None and wanted_bytes > budget_bytes:
        return LeaseAnswer(False, never=True, why=f"{wanted_bytes} bytes needed, the node's budget is {budget_bytes}")
    if level is Level.CRITICAL:
        return LeaseAnswer(False, why="memory is critical: nothing is loaded")
    if budget_bytes is None:
        return LeaseAnswer(True)  # nothing is known of this machine; the tier's own check before it loads remains
    free_bytes = budget_bytes - sum(lease.bytes for lease in leases.held.values())
    if wanted_bytes > free_bytes:
        return LeaseAnswer(False, why=f"{wanted_bytes} bytes needed, {max(0, free_bytes)} of {budget_bytes} are free")
    return LeaseAnswer(True)


def _without(leases: Mapping[str, Lease], holder: str) -> Mapping[str, Lease]:
    return {name: lease for name, lease in leases.items() if name != holder}
