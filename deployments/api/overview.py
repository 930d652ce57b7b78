"""The server at this moment, as JSON: what the control room shows and `GET /v1/reliability/live` answers.

It is made once within `_FRESH_S` for all. `tokens_s`: what a tier wrote over the last `_RATE_S`; `cached_share`: how
much of its prompts the cache gave in the last hour. Invariants: no word of a conversation; each list has a bound.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from deployments.config.app_config import RouterConfig
from deployments.graph.status_poll import TierWatch
from deployments.memory.view import MemoryView
from deployments.state.client import State
from deployments.state.history import RequestQuery, TimeSpan
from deployments.state.link import StateUnavailable
from deployments.state.records import Health
from reliability.admission.breaker import Phase

_FRESH_S = 0.2
SHARE_S = 0.5
_RATE_S = 10.0
_HOUR_S = 3600.0
_DAY_S = 86_400.0
_SUMS_EVERY_S = 5.0
FINISHED_MAX = 20
_RUNNING_MAX = 256
_CLOSED = Health(phase=Phase.CLOSED, isolated=False)


def _sum_up(summary: Mapping[str, Any]) -> dict[str, Any]:
    rows = summary["tiers"]
    names = ("requests", "answered", "escalated", "mended", "looped", "prompt_tokens", "completion_tokens")
    costs = [row["cost_usd"] for row in rows if row["cost_usd"] is not None]
    return {
        **{name: sum(row[name] or 0 for row in rows) for name in (*names, "cached_tokens")},
        "cost_usd": sum(costs) if costs else None,
        "incidents": summary["incidents"],
        "tiers": rows,
    }


class Overview:
    """One per Router replica, on its event loop. `running` lists its requests; `stopping`: it is being stopped.
    `memory`: None where it isn't watched."""

    def __init__(
        self,
        *,
        state: State,
        watch: TierWatch,
        running: Callable[[], list[dict[str, Any]]],
        stopping: Callable[[], bool],
        memory: MemoryView | None,
        tiers: Sequence[str],
        cloud: frozenset[str],
        config: Callable[[], RouterConfig],
    ) -> None:
        self.state, self.watch, self.memory = state, watch, memory
        self.tiers, self.cloud, self.config = tuple(tiers), cloud, config
        self.stopping, self._list_running = stopping, running
        self._taken: dict[str, Any] = {}
        self._taken_s = self._hour_s = float("-inf")
        self._turn = asyncio.Lock()
        self._newest: int | None = None
        self._finished: deque[dict[str, Any]] = deque(maxlen=FINISHED_MAX)
        self._ended: Counter[str] = Counter()
        # How many tokens each tier has written since somebody looks, at one moment after the other.
        self._written: deque[tuple[float, Counter[str]]] = deque()
        self._hour: Mapping[str, Mapping[str, Any]] = {}
        self._day: dict[str, Any] = _sum_up({"tiers": [], "incidents": {}})
        self._day_s = float("-inf")

    async def share_on(self) -> None:
        """Show the other Routers what this one runs, as long as somebody looks through one of them. Never ends."""
        while True:
            await asyncio.sleep(SHARE_S)
            if self.state.watched and self.config().server.router_replicas > 1:
                with suppress(StateUnavailable):  # the next turn tries again
                    await self.state.share_running(self._list_running())

    async def take(self) -> dict[str, Any]:
        """Return the server at this moment. Where the state actor is away, what it knows is missing, as `state_actor`
        says."""
        async with self._turn:
            if time.monotonic() - self._taken_s >= _FRESH_S:
                self._taken = await self._make()
                self._taken_s = time.monotonic()
            return self._taken

    def forget(self) -> None:
        """Make the next `take` anew: an order has changed something."""
        self._taken_s = float("-inf")

    async def take_day(self) -> dict[str, Any]:
        """Return the sums of the last day; where the state actor is away, the last that are known."""
        if time.monotonic() - self._day_s >= _SUMS_EVERY_S:
            with suppress(StateUnavailable):
                now_s = time.time()
                self._day = _sum_up(await self.state.summarize(TimeSpan(since_s=now_s - _DAY_S, until_s=now_s + 1)))
                self._day_s = time.monotonic()
        return self._day

    def describe_tier(self, name: str) -> dict[str, Any]:
        status, health = self.watch.known.get(name), self.state.health.get(name) or _CLOSED
        return {
            "name": name,
            "state": status.state.value if status else "unknown",
            "reason": (status.reason or None) if status else None,
            "degraded": health.degraded,
            "breaker": health.phase.value,
            "isolated": health.isolated,
            "opens_in_s": round(health.until_s, 3) or None,
            "context_length": self.watch.context_tokens.get(name),
            **{one: getattr(status, one, None) for one in ("kind", "model", "source", "revision")},
        }

    async def _make(self) -> dict[str, Any]:
        others, up = await self._ask_state()
        running = sorted([*self._list_running(), *others], key=lambda row: row["at"])[:_RUNNING_MAX]
        rates = self._count_rates(running)
        places = {name: at for at, name in enumerate(self.config().reliability.escalation.chain)}
        names = sorted(self.tiers, key=lambda name: places.get(name, len(places)))
        return {
            "at": time.time(),
            "state_actor": self.state.condition if up or not self.state.up else "away",
            "tiers": [self._describe(name, running, rates, places.get(name)) for name in names],
            "running": running,
            "finished": list(self._finished),
            "memory": None if self.memory is None else self.memory.summary(),
        }

    async def _ask_state(self) -> tuple[list[dict[str, Any]], bool]:
        try:
            seen = await self.state.look(self._newest)
            ended = seen["finished"]
            if self._newest is None:
                ended = await self.state.browse(RequestQuery(limit=FINISHED_MAX))
            else:
                for attempt in (attempt for report in ended for attempt in report["attempts"]):
                    self._ended[attempt["tier"]] += (attempt["usage"] or {}).get("completion_tokens", 0)
            self._finished.extendleft(reversed(ended))
            self._newest = seen["newest"]
            if time.monotonic() - self._hour_s >= _SUMS_EVERY_S:
                hour = await self.state.summarize(TimeSpan(since_s=time.time() - _HOUR_S, until_s=time.time() + 1))
                self._hour = {row["tier"]: row for row in hour["tiers"]}
                self._hour_s = time.monotonic()
        except StateUnavailable:
            return [], False
        return seen["running"], True

    def _count_rates(self, running: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        now_s, tokens = time.monotonic(), Counter(self._ended)
        for row in running:
            tokens[row["tier"] or ""] += row["tokens"]
        while self._written and now_s - self._written[0][0] > _RATE_S:
            self._written.popleft()
        self._written.append((now_s, tokens))
        first_s, before = self._written[0]
        past_s = now_s - first_s
        return {name: max(0, tokens[name] - before[name]) / past_s for name in tokens} if past_s > 0 else {}

    def _describe(
        self, name: str, running: Sequence[Mapping[str, Any]], rates: Mapping[str, float], place: int | None
    ) -> dict[str, Any]:
        here = [row for row in running if row["tier"] == name]
        hour = self._hour.get(name, {})
        prompts = hour.get("prompt_tokens") or 0
        status = self.watch.known.get(name)
        return self.describe_tier(name) | {
            **{one: getattr(status, one, None) for one in ("warning", "download_bytes")},
            "place": place,
            "cloud": name in self.cloud,
            "asked": len(here),
            "writing": sum(row["writing"] for row in here),
            "tokens_s": round(rates.get(name, 0.0), 1),
            "cached_share": round((hour.get("cached_tokens") or 0) / prompts, 3) if prompts else None,
            "requests_hour": hour.get("requests", 0),
            "cost_usd_hour": hour.get("cost_usd"),
            "memory": None if self.memory is None else _find_memory(name, self.memory),
        }


def _find_memory(name: str, view: MemoryView) -> dict[str, Any]:
    summary = view.summary()
    held = [one for one in view.list_holders() if one["tier"] == name and one["held"]]
    budgets = [node["budget_bytes"] or 0 for node in summary["nodes"].values()]
    return {
        "leased_bytes": sum(one["bytes"] for one in held),
        "budget_bytes": sum(budgets) or None,
        "replicas": len(held),
        "waits": summary["waiting"].get(name),
        "capped": summary["capped"].get(name),
    }
