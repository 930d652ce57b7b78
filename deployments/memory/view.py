"""MemoryView: what a Router replica knows of all nodes' memory, without asking on the way of a request.

A background task polls the monitors every `poll_s`, each with a timeout. Reports become moments of this process's
clock, so a reading ages by itself: a monitor that is dead, hung or gone makes its node unknown. Each view hands a
transition over once; with several Router replicas its `id` comes several times, and the journal keeps the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from deployments.memory import nodes
from deployments.memory.monitor import TRANSITIONS_MAX
from deployments.memory.plan import Holder, MemoryPlan, NodeReport, Transition
from deployments.memory.replica_caps import find_refused_replicas
from deployments.memory.sensors.sensor import NS_PER_S
from deployments.running.actor_calls import call_actor
from deployments.telemetry import log_error, log_info
from reliability.memory.pressure import Level

_ASK_TIMEOUT_S = 1.0
_LOOK_UP_EVERY_S = 5.0
_LOOK_UP_TIMEOUT_S = 10.0
# A node that has not reported for this long isn't mentioned any more.
_GONE_S = 60.0


@dataclass(frozen=True, slots=True)
class _ObservedLevel:
    """A level, for how long it has been at warn or above, and what decided it (empty at normal and unknown)."""

    level: Level
    sustained_ns: int = 0
    decided_by: str = ""


@dataclass(frozen=True, slots=True)
class _NodeView:
    """A node's last report, on this process's clock. `pressed_ns`: since when it is at warn or above."""

    report: NodeReport
    fresh_until_ns: int
    pressed_ns: int

    def read_level(self, now_ns: int) -> _ObservedLevel:
        """Return what the report is worth at this moment."""
        if now_ns >= self.fresh_until_ns:
            return _ObservedLevel(Level.UNKNOWN)
        level = self.report.level
        if level.rank < 1:
            return _ObservedLevel(level)
        return _ObservedLevel(level, max(0, now_ns - self.pressed_ns), f"{self.report.source} on {self.report.host}")


class MemoryView:
    """One per Router replica. `app` is the Serve application's name. All methods belong to one event loop."""

    def __init__(self, plan: MemoryPlan, app: str) -> None:
        self._settings = plan.settings
        self._app = app
        self._needs = plan.needs
        self._handles: dict[str, Any] = {}
        self._nodes: dict[str, _NodeView] = {}
        self._asked: dict[str, tuple[str, int]] = {}
        self._new: deque[Transition] = deque(maxlen=4 * TRANSITIONS_MAX)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to poll, in the running event loop. Calling it again does nothing; `level` calls it too."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def level(self, tier: str | None = None, now_ns: int | None = None) -> _ObservedLevel:
        """Return the level that counts for a tier, or for the whole cluster. Must be called in the event loop."""
        self.start()
        now_ns = time.monotonic_ns() if now_ns is None else now_ns
        homes = [view for view in self._nodes.values() if tier in {h.tier for h in view.report.held}]
        levels = [view.read_level(now_ns) for view in homes or self._nodes.values()]
        return max(levels, key=lambda one: (one.level.rank, one.sustained_ns), default=_ObservedLevel(Level.UNKNOWN))

    def transitions(self) -> list[Transition]:
        """Return those that came since the last call, oldest first."""
        new = list(self._new)
        self._new.clear()
        return new

    def summary(self) -> dict[str, Any]:
        """Summarise what is known, for `/ready`."""
        now_ns = time.monotonic_ns()
        worst = self.level(now_ns=now_ns)
        reports = self._list_reports()
        capped = find_refused_replicas(self._needs, [report.budget_bytes for report in reports])
        return {
            "level": worst.level.value,
            "decided_by": worst.decided_by or None,
            "sustained_s": round(worst.sustained_ns / NS_PER_S, 1),
            "nodes": {
                f"{view.report.host} {view.report.node[:8]}": _show_node(view, now_ns) for view in self._nodes.values()
            },
            "waiting": {holder.tier: holder.why for report in reports for holder in report.waiting},
            "capped": capped | {tier: why for report in reports for tier, why in report.caps.items()},
        }

    def list_holders(self) -> list[dict[str, Any]]:
        """List who holds memory where, or waits for it."""
        reports = self._list_reports()
        held = [_show_holder(report, holder, held=True) for report in reports for holder in report.held]
        return held + [_show_holder(report, holder, held=False) for report in reports for holder in report.waiting]

    def _list_reports(self) -> list[NodeReport]:
        return [view.report for view in self._nodes.values()]

    async def _run(self) -> None:
        looked_up_ns = None
        while True:
            try:
                if looked_up_ns is None or time.monotonic_ns() - looked_up_ns > _LOOK_UP_EVERY_S * NS_PER_S:
                    looked_up_ns = time.monotonic_ns()
                    async with asyncio.timeout(_LOOK_UP_TIMEOUT_S):
                        await asyncio.to_thread(nodes.here, self._app, self._settings)
                        self._handles = await asyncio.to_thread(nodes.find, self._app, self._settings)
                await asyncio.gather(*(self._ask(name, handle) for name, handle in list(self._handles.items())))
            except Exception as error:  # Ray's control service is away: what is known ages, and it is tried again
                log_error("memory_view_blind", error)
            long_ago_ns = time.monotonic_ns() - int(_GONE_S * NS_PER_S)
            self._nodes = {name: view for name, view in self._nodes.items() if view.fresh_until_ns > long_ago_ns}
            self._asked = {name: asked for name, asked in self._asked.items() if name in self._nodes}
            await asyncio.sleep(self._settings.poll_s)

    async def _ask(self, name: str, handle: Any) -> None:
        epoch, seen = self._asked.get(name, ("", 0))
        try:
            async with asyncio.timeout(_ASK_TIMEOUT_S):
                seen, report = await call_actor(handle.report.remote, epoch, seen, self._needs)
        except Exception as error:  # dead, restarting or hung: its node's reading ages to unknown, which `level` shows
            # A process takes longer to start than a monitor to answer.
            if not isinstance(error, TimeoutError) or name in self._asked:
                self._handles.pop(name, None)
            return
        self._take(name, seen, report)

    def _take(self, name: str, seen: int, report: NodeReport) -> None:
        now_ns = time.monotonic_ns()
        self._asked[name] = (report.epoch, seen)
        self._nodes[name] = _NodeView(
            report=report,
            fresh_until_ns=now_ns + int(report.fresh_s * NS_PER_S),
            pressed_ns=now_ns - int(report.sustained_s * NS_PER_S),
        )
        for transition in report.transitions:
            words = {"before": transition.before.value, "after": transition.after.value, "source": transition.source}
            log_info("memory_level", node=transition.host, **words)
        self._new.extend(report.transitions)


def _show_holder(report: NodeReport, holder: Holder, *, held: bool) -> dict[str, Any]:
    return {
        "node": f"{report.host} {report.node[:8]}",
        "tier": holder.tier,
        "replica": holder.holder,
        "held": held,
        "bytes": holder.bytes,
        "used_bytes": holder.used_bytes,
        "since_s": holder.since_s,
        "why": holder.why or None,
    }


def _show_node(view: _NodeView, now_ns: int) -> dict[str, Any]:
    report, observed = view.report, view.read_level(now_ns)
    return {
        "level": observed.level.value,
        "source": report.source if observed.level.rank > 0 else None,
        "budget_bytes": report.budget_bytes,
        "leased_bytes": sum(holder.bytes for holder in report.held),
        "available_bytes": report.available_bytes,
        "tiers": sorted({holder.tier for holder in report.held}),
        "problem": report.problem or None,
    }
