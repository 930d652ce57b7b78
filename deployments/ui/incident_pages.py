"""`/ui/incidents`: what went wrong, or was mended, over time and one by one; the same as CSV and JSON."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from deployments.api.responses import json_response
from deployments.errors import ApiError
from deployments.state.history import Span
from deployments.state.incident_record import IncidentKind
from deployments.state.records import Query
from deployments.ui.desk import Desk
from deployments.ui.rendering import GUARDED
from deployments.ui.request_pages import read_filters
from deployments.ui.visits import Visit

__all__ = ["IncidentPages", "stack_counts"]

PAGE, EXPORT_PAGE = 50, 500
FILTERS = ("kind", "tier", "session", "key", "request_id")
COUNTED = FILTERS[:-1]
# What the chart shows: name, how long, in pieces of how long.
SPANS = {"day": (86_400.0, 1_800.0), "week": (7 * 86_400.0, 4 * 3_600.0), "month": (30 * 86_400.0, 86_400.0)}
FIGURES = ("attempt", "prompt_tokens", "completion_tokens", "ttft_ms", "elapsed_ms")
COLUMNS = ("id", "at", "kind", "reason", "tier", "session", "key", "request_id", *FIGURES)
# What a spreadsheet computes at the beginning of a cell, and, where commas stand in numbers, behind a semicolon.
FORMULA = re.compile(r"""(^|[;\t])(?=["\s]*[=+\-@]|[\t\r])""")
Incidents = Sequence[Mapping[str, Any]]


class IncidentPages:
    """The page, its chart's figures and its exports."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[Route]:
        """List them, below `/ui`."""
        return [
            Route("/incidents", self._desk.look(self.show_list)),
            Route("/incidents/counts", self._desk.look(self.count)),
            Route("/incidents.{form:str}", self._desk.look(self.export)),
        ]

    async def show_list(self, request: Request, visit: Visit) -> Response:
        """List the newest that match, a page at a time."""
        params = request.query_params
        filters = read_filters(params, FILTERS)
        text = params.get("before", "")
        before = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
        incidents = await self._desk.state.incidents(Query(**filters, before=before, limit=PAGE))
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
        span = Span(since_s=until_s - long_s, until_s=until_s, piece_s=piece_s, **filters)
        counts = await self._desk.state.count_incidents(span)
        return json_response(stack_counts(counts, span), headers=GUARDED)

    async def export(self, request: Request, _: Visit) -> Response:
        """Send all that match, the newest first, as CSV or JSON: piece by piece, so that nobody holds them all."""
        form = request.path_params["form"]
        if form not in ("csv", "json"):
            raise ApiError("not_found", "There is no such file: incidents.csv and incidents.json are.")
        filters = read_filters(request.query_params, FILTERS)
        # What goes wrong with the first page is still an answer; later it can only break the file off.
        pages = self._read_on(filters, await self._read(filters, None))
        rows = _write_csv(pages) if form == "csv" else _write_json(pages)
        headers = GUARDED | {"content-disposition": f'attachment; filename="incidents.{form}"'}
        return StreamingResponse(rows, media_type="text/csv" if form == "csv" else "application/json", headers=headers)

    async def _read(self, filters: Mapping[str, Any], before: int | None) -> Incidents:
        return await self._desk.state.incidents(Query(**filters, before=before, limit=EXPORT_PAGE))

    async def _read_on(self, filters: Mapping[str, Any], page: Incidents) -> AsyncGenerator[Incidents, None]:
        while page:
            yield page
            page = await self._read(filters, page[-1]["id"]) if len(page) == EXPORT_PAGE else ()


def stack_counts(counts: Sequence[tuple[int, str, int]], span: Span) -> dict[str, Any]:
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


async def _write_csv(pages: AsyncGenerator[Incidents, None]) -> AsyncGenerator[bytes, None]:
    yield _write_lines([COLUMNS])
    async for page in pages:
        yield _write_lines([[_defuse(one.get(name)) for name in COLUMNS] for one in page])


async def _write_json(pages: AsyncGenerator[Incidents, None]) -> AsyncGenerator[bytes, None]:
    begin = b"["
    async for page in pages:
        yield begin + b",\n".join(map(orjson.dumps, page))
        begin = b",\n"
    yield b"[]" if begin == b"[" else b"]"


def _write_lines(rows: Sequence[Sequence[Any]]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue().encode("utf-8", "replace")


def _defuse(value: Any) -> Any:
    """Keep a spreadsheet from running a client's word as a formula."""
    return FORMULA.sub(r"\1'", value) if isinstance(value, str) else value
