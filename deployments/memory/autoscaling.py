"""The autoscaling policy of the whole application: Serve's own demand, capped by what the nodes' memory holds.

    demand   Serve's default policy; the highest of the last `hold_s`, so a lull keeps a model that loads for minutes
    cap      `replica_caps.py`: bytes x replicas of all tiers in the nodes' budgets, minimums first, then priority
    level    the worst node's: at warn a tier doesn't grow, at critical it shrinks to its minimum; unread, no growth

Serve's controller calls it ten times a second. A call must never block nor raise, so a daemon thread asks the monitors
and a call reads its cell; an error leaves every tier as it is. Why it undoes Serve's factors, and what only the leases
can hold: docs/decisions/051-memory.md. Serve pickles this module by value, and what it imports by name.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.serve.autoscaling_policy import replica_queue_length_autoscaling_policy

from deployments.memory import nodes
from deployments.memory.plan import NodeReport, TierNeed
from deployments.memory.replica_caps import cap_replicas
from deployments.running.actor_calls import call_actor

_LOG = logging.getLogger("ray.serve")
_ASK_EVERY_S = 1.0
_ASK_TIMEOUT_S = 2.0
# A report of the monitors counts this long: a hung thread must not let anything grow.
_FRESH_S = 5.0
_HOLD_S = 300.0
_LOG_EVERY_S = 30.0
# Serve rounds up: a cap of 2 that arithmetic makes 2.0000000001 would be 3.
_EPSILON = 1e-6


@dataclass
class _DemandCell:
    """What the thread and the policy share; each field is written by one of them. A policy that Serve drops is
    collected, and ends its thread. `seen`: the newest report of each node, and when they came."""

    app: str
    stop: threading.Event = field(default_factory=threading.Event)
    seen: tuple[tuple[NodeReport, ...], float] = ((), -math.inf)
    caps: Mapping[str, str] = field(default_factory=dict)


class MemoryCappedPolicy:
    """An application-level policy of Ray Serve. `hold_s`: for how long a demand is remembered."""

    def __init__(self, hold_s: float = _HOLD_S) -> None:
        self._hold = _HeldDemand(hold_s)
        self._cell: _DemandCell | None = None
        self._needs: tuple[TierNeed, ...] = ()
        self._logged_s: dict[str, float] = {}
        self._failed = ""

    def __call__(self, contexts: Mapping[Any, Any]) -> tuple[dict[Any, float], dict[Any, dict[str, Any]]]:
        """Return the number of replicas of each deployment. Never raises."""
        try:
            return self._decide(contexts), {}
        except Exception as error:
            if type(error).__name__ != self._failed:  # ten times a second is no log
                self._failed = type(error).__name__
                _LOG.error("memory_policy_failed: every tier stays as it is", exc_info=error)
            return {key: context.target_num_replicas for key, context in contexts.items()}, {}

    def _decide(self, contexts: Mapping[Any, Any]) -> dict[Any, float]:
        if not contexts:
            return {}
        now_s = time.monotonic()
        cell = self._watch(next(iter(contexts.values())).app_name)
        seen, seen_s = cell.seen
        reports = seen if now_s - seen_s < _FRESH_S else ()
        self._needs = next((r.needs for r in reports if r.needs), self._needs)
        least = {c.deployment_name: c.capacity_adjusted_min_replicas for c in contexts.values()}
        needs = tuple(replace(need, replicas_min=least.get(need.name, need.replicas_min)) for need in self._needs)
        keys = {context.deployment_name: key for key, context in contexts.items()}
        wanted = {name: self._find_wanted(name, contexts[key], now_s) for name, key in keys.items()}
        now = {name: int(contexts[key].target_num_replicas) for name, key in keys.items()}
        fits = cap_replicas(needs, reports, wanted, now)
        cell.caps = {name: fit.why for name, fit in fits.items() if fit.why}
        for name, why in cell.caps.items():
            # The numbers in it change with the load: the monitors have the newest, the log has one in a while.
            if now_s - self._logged_s.get(name, -math.inf) >= _LOG_EVERY_S:
                self._logged_s[name] = now_s
                _LOG.warning("memory_caps tier=%s why=%s", name, why)
        return {key: _undo_factors(contexts[key], fits[name].replicas) for name, key in keys.items()}

    def _find_wanted(self, name: str, context: Any, now_s: float) -> int:
        demand, _ = replica_queue_length_autoscaling_policy(context)
        least, most = context.capacity_adjusted_min_replicas, context.capacity_adjusted_max_replicas
        wanted = max(least, min(most, _apply_factors(context, demand)))
        held = self._hold.take(name, wanted, now_s)
        # The lull of the last replica is Serve's to measure: `tiers.NAME.idle_s`.
        return 0 if wanted == 0 and held == 1 and context.target_num_replicas <= 1 else held

    def _watch(self, app: str) -> _DemandCell:
        if self._cell is None or self._cell.app != app:
            if self._cell is not None:
                self._cell.stop.set()
            self._cell = _DemandCell(app)
            threading.Thread(target=_poll, args=(self._cell,), name="memory-policy", daemon=True).start()
            weakref.finalize(self, self._cell.stop.set)
        return self._cell


class _HeldDemand:
    """The highest demand of the last `hold_s`, per deployment."""

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        # Falling from left to right: only what isn't topped by something newer. So it has at most as many entries as
        # there are numbers of replicas.
        self._peaks: dict[str, deque[tuple[float, int]]] = {}

    def take(self, name: str, wanted: int, now_s: float) -> int:
        """Take the demand of this moment; return the one to go by."""
        peaks = self._peaks.setdefault(name, deque())
        while peaks and peaks[-1][1] <= wanted:
            peaks.pop()
        peaks.append((now_s, wanted))
        while now_s - peaks[0][0] > self._hold_s:
            peaks.popleft()
        return peaks[0][1]


def _apply_factors(context: Any, demand: float) -> int:
    """Return what Serve would make of this demand, before its bounds. `context`: Serve's AutoscalingContext."""
    current = int(context.current_num_replicas)
    if current == 0:
        return math.ceil(demand)
    return math.ceil(current + _find_factor(context, demand - current) * (demand - current) - _EPSILON)


def _undo_factors(context: Any, replicas: int) -> float:
    """Return what a policy must return so that Serve makes `replicas` of it."""
    current = int(context.current_num_replicas)
    if current in (0, replicas):
        return replicas
    return float(current + (replicas - current - _EPSILON) / _find_factor(context, replicas - current))


def _find_factor(context: Any, delta: float) -> float:
    config = context.config
    return float(config.get_upscaling_factor() if delta > 0 else config.get_downscaling_factor())


def _keep_newest(reports: list[NodeReport]) -> tuple[NodeReport, ...]:
    """Keep one report per node: after a redeploy two monitors may stand on it for a minute."""
    newest = {report.node: report for report in sorted(reports, key=lambda report: report.started_unix_s)}
    return tuple(newest.values())


def _poll(cell: _DemandCell) -> None:
    """Poll the monitors, on the thread, until it is stopped. What it can't see grows old."""
    troubled = ""
    while not cell.stop.is_set():
        try:
            handles = list(nodes.find(cell.app).values())
            reports = [_peek(handle, dict(cell.caps)) for handle in handles]
            cell.seen = _keep_newest([report for report in reports if report is not None]), time.monotonic()
            troubled = ""
        except Exception as error:
            if type(error).__name__ != troubled:
                troubled = type(error).__name__
                _LOG.warning("memory_policy_blind: nothing grows", exc_info=error)
        cell.stop.wait(_ASK_EVERY_S)


def _peek(handle: Any, caps: dict[str, str]) -> NodeReport | None:
    try:
        report: NodeReport = ray.get(call_actor(handle.peek.remote, caps), timeout=_ASK_TIMEOUT_S)
    except Exception:  # dead or hung: its node isn't in the sum, so less fits
        return None
    return report
