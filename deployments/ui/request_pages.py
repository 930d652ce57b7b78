"""`/ui/requests` and `/ui/requests/{id}`: what has finished, and one of them as a timeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.admin import find_key
from deployments.errors import ApiError
from deployments.state.history import RequestQuery
from deployments.state.records import Query
from deployments.ui.desk import Desk
from deployments.ui.timeline import tell, write_curl
from deployments.ui.visits import Visit, find_root
from reliability.types import Fault, Flaw, Reason, RefuseCode

__all__ = ["RequestPages", "read_filters"]

PAGE = 50
INCIDENTS_MAX = 100
NAMES = ("session", "tier", "outcome", "mark", "key")
OUTCOMES = ("answered", "client_left", *sorted(RefuseCode))
MARKS = ("mended", "loop", "escalated", "retried", "budget_warning", *sorted({*Fault, *Flaw, *Reason}))


class RequestPages:
    """The two pages."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[Route]:
        """List them, below `/ui`."""
        return [
            Route("/requests", self._desk.look(self.show_list)),
            Route("/requests/{number}", self._desk.look(self.show)),
            Route("/requests/by-id/{request_id:path}", self._desk.look(self.find)),
        ]

    async def show_list(self, request: Request, visit: Visit) -> Response:
        """List the newest that match, a page at a time."""
        filters = read_filters(request.query_params, NAMES)
        before = _read_number(request.query_params.get("before"))
        query = RequestQuery(**filters, before=before, limit=PAGE)
        reports = await self._desk.state.browse(query)
        older = urlencode({**filters, "before": reports[-1]["id"]}) if len(reports) == PAGE else None
        return self._desk.show(
            request,
            visit,
            "requests.html",
            reports=reports,
            filters=dict.fromkeys(NAMES, "") | filters,
            filtered=bool(filters),
            older=older,
            tiers=self._desk.overview.tiers,
            outcomes=OUTCOMES,
            marks=MARKS,
        )

    async def show(self, request: Request, visit: Visit) -> Response:
        """Show one, by its number in the journal."""
        number = _read_number(request.path_params["number"])
        if number is None:
            return await self._show(request, visit, [])
        found = await self._desk.state.browse(RequestQuery(before=number + 1, after=number - 1, limit=1))
        return await self._show(request, visit, found)

    async def find(self, request: Request, visit: Visit) -> Response:
        """Show the one of this id, as clients know it."""
        state, request_id = self._desk.state, request.path_params["request_id"]
        key = await find_key(state, visit.caller, request.query_params, "request", request_id)
        report = None if key is None else await state.report(key, request_id)
        if report is None:
            return await self._show(request, visit, [])
        # A report doesn't say when its request ended; the list does, as far as it goes.
        newest = await self._desk.state.browse(RequestQuery(key=report["key"], session=report["session"], limit=PAGE))
        listed = [one for one in newest if one["request_id"] == report["request_id"]]
        return await self._show(request, visit, [*listed[:1], report])

    async def _show(self, request: Request, visit: Visit, found: list[dict[str, Any]]) -> Response:
        if not found:
            raise ApiError("not_found", "There is no report of this request: it is too old, or still running.")
        report = found[0]
        asked = Query(request_id=report["request_id"], key=report["key"], limit=INCIDENTS_MAX)
        incidents = list(reversed(await self._desk.state.browse(asked)))
        keep_text = self._desk.overview.config().reliability.incidents.keep_text
        timeline = tell(report, incidents, keep_text=keep_text)
        url = f"{request.url.scheme}://{request.url.netloc}{find_root(request)}"
        return self._desk.show(
            request,
            visit,
            "request.html",
            report=report,
            timeline=timeline,
            bars=timeline.steps,
            keep_text=keep_text,
            curl=write_curl(report, incidents, url, keyed=bool(visit.caller.name)),
        )


def read_filters(params: Mapping[str, str], names: tuple[str, ...]) -> dict[str, Any]:
    """Read the filters that say something."""
    return {name: value for name in names if (value := params.get(name, "").strip())}


def _read_number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else None
