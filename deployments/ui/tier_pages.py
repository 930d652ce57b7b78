"""`/ui/tiers` and `/ui/memory`: what each tier is, the orders that it takes, and who holds what of the memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.responses import json_response
from deployments.errors import ApiError
from deployments.state.records import Query
from deployments.telemetry import log_info
from deployments.ui.page_auth import Visit
from deployments.ui.page_context import GUARDED, PageContext, go_to, show_page
from reliability.admission.events import Order

_WORDS = {"isolate": "isolated", "restore": "restored", "close": "closed", "download": "download_started"}
_WEEK_S = 7 * 86_400.0
_TRANSITIONS_MAX = 500
_RANKS = {"unknown": 0, "normal": 1, "warn": 2, "critical": 3}


class TierPages:
    """The two pages, the orders, and the figures of the memory's chart."""

    def __init__(self, context: PageContext) -> None:
        self._context, self._state = context, context.overview.state
        self._fetches: dict[str, subprocess.Popen[bytes]] = {}

    def routes(self) -> list[Route]:
        return [
            Route("/tiers", self._context.look(self.show)),
            Route("/tiers/{tier}/{order}", self._context.order(self.order), methods=["POST"]),
            Route("/memory", self._context.look(self.show_memory)),
            Route("/memory/levels", self._context.look(self.count_levels)),
        ]

    async def show(self, request: Request, visit: Visit) -> Response:
        now = await self._context.overview.take()
        orders = await self._state.browse(Query(kind="operator", limit=10))
        changes = await self._state.browse(Query(kind="breaker", limit=10))
        return show_page(request, visit, "tiers.html", now=now, orders=orders, changes=changes)

    async def order(self, request: Request, visit: Visit, _: Mapping[str, str]) -> Response:
        tier, order = request.path_params["tier"], request.path_params["order"]
        if tier not in self._context.overview.tiers or order not in _WORDS:
            raise ApiError("not_found", "There is no such tier, or no such order.")
        if order == "download":
            self._download(tier)
        else:
            await self._state.order(Order(tier, order))
        log_info(f"tier_{_WORDS[order]}", tier=tier, by=visit.caller.name or None)
        await self._state.hear()
        self._context.overview.forget()
        return go_to(request, "/ui/tiers")

    def _download(self, tier: str) -> None:
        """Fetch the tier's model in a process of its own; its progress is the tier's reason from then on."""
        status = self._context.overview.watch.known.get(tier)
        if status is None or status.download_bytes is None or not status.source:
            raise ApiError("not_found", "There is nothing to download for this tier.")
        running = self._fetches.get(tier)
        if running is None or running.poll() is not None:
            command = [sys.executable, "-P", "-m", "deployments", "pull", status.source]
            self._fetches[tier] = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    async def show_memory(self, request: Request, visit: Visit) -> Response:
        overview = self._context.overview
        now = await overview.take()
        changes = await self._state.browse(Query(kind="memory", limit=20))
        scaled = await self._state.browse(Query(kind="scaling", limit=20))
        holders = [] if overview.memory is None else overview.memory.list_holders()
        return show_page(request, visit, "memory.html", now=now, holders=holders, changes=changes, scaled=scaled)

    async def count_levels(self, request: Request, _: Visit) -> Response:
        """Answer with the chart's figures: the level of each machine over a week."""
        now_s = time.time()
        query = Query(kind="memory", since_s=now_s - _WEEK_S, limit=_TRANSITIONS_MAX)
        changes = list(reversed(await self._state.browse(query)))
        memory = self._context.overview.memory
        known = {} if memory is None else {n: node["level"] for n, node in memory.summary()["nodes"].items()}
        return json_response(_draw_levels(changes, known, now_s), headers=GUARDED)


def _draw_levels(changes: list[dict[str, Any]], known: Mapping[str, str], now_s: float) -> dict[str, Any]:
    """Draw the level of each machine as steps: from the changes, the oldest first, up to what is known now."""
    moments = sorted({now_s - _WEEK_S, now_s, *(one["at"] for one in changes)})
    nodes: dict[str, list[tuple[float, str, str]]] = {}
    for one in changes:
        seen = one["evidence"]
        name = f"{seen['host']} {seen['node'][:8]}"
        nodes.setdefault(name, []).append((one["at"], seen["before"], seen["after"]))
    series = []
    for name in sorted({*nodes, *known}):
        steps = nodes.get(name, [])
        level = steps[0][1] if steps else known[name]
        values, at = [], 0
        for moment in moments:
            while at < len(steps) and steps[at][0] <= moment:
                level, at = steps[at][2], at + 1
            values.append(_RANKS.get(level, 0))
        series.append({"name": name, "values": values})
    return {"at": moments, "series": series, "words": list(_RANKS)}
