"""`/ui/incidents`: faults, flaws and repairs, counted over time and listed one by one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.responses import json_response
from deployments.state.history import TimeSpan
from deployments.state.incident_record import IncidentKind
from deployments.state.records import Query
from deployments.ui.desk import Desk
from deployments.ui.rendering import GUARDED
from deployments.ui.request_pages import read_filters
from deployments.ui.visits import Visit

__all__ = ["IncidentPages", "stack_counts"]

PAGE = 50
FILTERS = ("kind", "tier", "session", "key", "request_id")
COUNTED = FILTERS[:-1]
# What the chart shows: name, how long, in pieces of how long.
SPANS = {"day": (86_400.0, 1_800.0), "week": (7 * 86_400.0, 4 * 3_600.0), "month": (30 * 86_400.0, 86_400.0)}


class IncidentPages:
    """The page and its chart's figures."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[Route]:
        """List them, below `/ui`."""
        return [
            Route("/incidents", self._desk.look(self.show_list)),
            Route("/incidents/counts", self._desk.look(self.count)),
        ]

    async def show_list(self, request: Request, visit: Visit) -> Response:
        """List the newest that match, a page at a time."""
        params = request.query_params
        filters = read_filters(params, FILTERS)
        text = params.get("before", "")
        before = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
        incidents = await self._desk.state.browse(Query(**filters, before=before, limit=PAGE))
        older = urlencode({**filters, "before": incidents[-1]["id"]}) if len(incidents) == PAGE else None
        span = params.get("span") if params.get("span") in SPANS else "day"
        return self._desk.show(
            request,
            visit,
            "incidents.html",
            incidents=incidents,
            filters=dict.fromkeys(FILTERS, "") | filters,
            filtered=bool(filters),
            asked=urlencode(filters),
            older=older,
            span=span,
            spans=list(SPANS),
            kinds=[kind.value for kind in IncidentKind],
            tiers=self._desk.overview.tiers,
        )

    async def count(self, request: Request, _: Visit) -> Response:
        """Answer with the chart's figures: how many of each kind in each piece of time."""
        long_s, piece_s = SPANS.get(request.query_params.get("span", "day"), SPANS["day"])
        until_s = (time.time() // piece_s + 1) * piece_s
        filters = read_filters(request.query_params, COUNTED)
        span = TimeSpan(since_s=until_s - long_s, until_s=until_s, piece_s=piece_s, **filters)
        counts = await self._desk.state.count_incidents(span)
        return json_response(stack_counts(counts, span), headers=GUARDED)


def stack_counts(counts: Sequence[tuple[int, str, int]], span: TimeSpan) -> dict[str, Any]:
    """Make series of counts: the pieces' moments, and for each kind that occurs its number in each piece."""
    pieces = int((span.until_s - span.since_s) / span.piece_s)
    series: dict[str, list[int]] = {}
    for piece, kind, count in counts:
        if 0 <= piece < pieces:
            series.setdefault(kind, [0] * pieces)[piece] += count
    order = [kind.value for kind in IncidentKind if kind.value in series]
    return {
        "at": [span.since_s + n * span.piece_s for n in range(pieces)],
        "series": [{"name": kind, "values": series[kind]} for kind in order],
    }
