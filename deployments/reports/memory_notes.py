"""What becomes of memory, as incidents: a machine's level has changed, a replica that holds memory has come or gone.

Each Router notes all of it; the id in place of a request's names what happened, and the journal keeps one record of an
id. A replica is gone when no monitor has reported it for `GONE_S`: one that was restarted knows of no leases at first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from deployments.memory.plan import Transition
from deployments.memory.view import MemoryView
from deployments.state.incident_record import IncidentKind, record

_NOTE_EVERY_S = 1.0
GONE_S = 20.0

Holder = Mapping[str, Any]  # as `MemoryView.list_holders` has it


async def note_memory(view: MemoryView | None, note: Callable[[Mapping[str, Any]], None]) -> None:
    """Note every change of a machine's level, with who held what, and every replica that comes or goes."""
    replicas = ReplicaNotes()
    while view is not None:
        view.level()  # starts to poll
        for transition in view.transitions():
            note(_write_transition(transition, time.time()))
        for change in replicas.look(view.list_holders(), time.time()):
            note(change)
        await asyncio.sleep(_NOTE_EVERY_S)


class ReplicaNotes:
    """Which replicas have held memory so far. There are as many as there are replicas."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Holder, float]] = {}  # by replica: what was seen last, and when

    def look(self, holders: Sequence[Holder], now_s: float) -> Iterator[dict[str, Any]]:
        """Take who holds or waits now; yield what has changed."""
        for one in holders:
            if not one["held"]:
                continue
            if one["replica"] not in self._known:
                yield _write_change(one, "started", now_s - one["since_s"])
            self._known[one["replica"]] = (one, now_s)
        gone = [name for name, (_, seen_s) in self._known.items() if now_s - seen_s > GONE_S]
        for name in gone:
            one, seen_s = self._known.pop(name)
            yield _write_change(one, "ended", seen_s)


def _write_change(one: Holder, what: str, at_s: float) -> dict[str, Any]:
    return record(
        IncidentKind.SCALING,
        at_s=at_s,
        reason=what,
        request_id=f"replica-{one['replica']}-{what}",
        tier=one["tier"],
        evidence={"node": one["node"], "replica": one["replica"], "bytes": one["bytes"]},
    )


def _write_transition(transition: Transition, now_s: float) -> dict[str, Any]:
    return record(
        IncidentKind.MEMORY,
        at_s=now_s - transition.age_s,
        reason=f"{transition.before.value} -> {transition.after.value}",
        request_id=f"memory-{transition.id}",
        evidence=transition.snapshot(),
    )
