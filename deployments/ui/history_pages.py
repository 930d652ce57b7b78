"""`/ui/requests`, `/ui/sessions` and `/ui/incidents`: what has finished, who spent what, and what went wrong."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.admin import find_key
from deployments.api.responses import json_response
from deployments.errors import ApiError
from deployments.reports.report import write_headers
from deployments.state.history import RequestQuery, SessionQuery, TimeSpan
from deployments.state.incident_record import IncidentKind
from deployments.state.records import Query
from deployments.telemetry import log_info, session_tag
from deployments.ui.page_auth import Visit, find_root
from deployments.ui.page_context import GUARDED, PageContext, go_to, show_page
from deployments.ui.timeline import tell, write_curl
from reliability.types import Fault, Flaw, Reason, RefuseCode

_PAGE = 50
_REQUEST_FILTERS = ("session", "tier", "outcome", "mark", "key")
_INCIDENT_FILTERS = ("kind", "tier", "session", "key", "request_id")
_OUTCOMES = ("answered", "client_left", *sorted(RefuseCode))
_MARKS = ("mended", "loop", "escalated", "retried", "budget_warning", *sorted({*Fault, *Flaw, *Reason}))
_INCIDENTS_MAX = 100  # of one request
# What of a session is summed up by tier, and how much of it is listed.
_REPORTS_MAX, _LISTED, _LOOPS = 500, 30, 20
# What the chart of incidents shows: name, how long, in pieces of how long.
_SPANS = {"day": (86_400.0, 1_800.0), "week": (7 * 86_400.0, 4 * 3_600.0), "month": (30 * 86_400.0, 86_400.0)}
_NO_SESSION = "There is no session of this name: it is too old, or was reset."


class HistoryPages:
    """The pages, the chart's figures, and the order to forget what a session has spent."""

    def __init__(self, context: PageContext) -> None:
        self._context, self._state = context, context.overview.state

    def routes(self) -> list[Route]:
        look = self._context.look
        return [
            Route("/requests", look(self._list_requests)),
            Route("/requests/{number}", look(self._show_numbered)),
            Route("/requests/by-id/{request_id:path}", look(self._show_named)),
            Route("/sessions", look(self._list_sessions)),
            Route("/sessions/{session:path}/reset", self._context.order(self._reset), methods=["POST"]),
            Route("/sessions/{session:path}", look(self._show_session)),
            Route("/incidents", look(self._list_incidents)),
            Route("/incidents/counts", look(self._count_incidents)),
        ]

    async def _list_requests(self, request: Request, visit: Visit) -> Response:
        more = {"outcomes": _OUTCOMES, "marks": _MARKS}
        return await self._show_list(request, visit, "requests.html", RequestQuery, _REQUEST_FILTERS, **more)

    async def _list_incidents(self, request: Request, visit: Visit) -> Response:
        span = request.query_params.get("span")
        spans = {"span": span if span in _SPANS else "day", "spans": list(_SPANS)}
        kinds = [kind.value for kind in IncidentKind]
        return await self._show_list(request, visit, "incidents.html", Query, _INCIDENT_FILTERS, kinds=kinds, **spans)

    async def _show_list(
        self,
        request: Request,
        visit: Visit,
        template: str,
        kind: type[RequestQuery | Query],
        names: tuple[str, ...],
        **more: Any,
    ) -> Response:
        """Show a page of what matches the address's filters, and the way to the next one."""
        filters = _read_filters(request.query_params, names)
        before = _read_number(request.query_params.get("before"))
        found = await self._state.browse(kind(**filters, before=before, limit=_PAGE))
        return show_page(
            request,
            visit,
            template,
            found=found,
            filters=dict.fromkeys(names, "") | filters,
            asked=urlencode(filters),
            older=urlencode({**filters, "before": found[-1]["id"]}) if len(found) == _PAGE else None,
            tiers=self._context.overview.tiers,
            **more,
        )

    async def _show_numbered(self, request: Request, visit: Visit) -> Response:
        number, found = _read_number(request.path_params["number"]), []
        if number is not None:
            found = await self._state.browse(RequestQuery(before=number + 1, after=number - 1, limit=1))
        return await self._show_request(request, visit, found)

    async def _show_named(self, request: Request, visit: Visit) -> Response:
        request_id = request.path_params["request_id"]
        key = await find_key(self._state, visit.caller, request.query_params, "request", request_id)
        report = None if key is None else await self._state.report(key, request_id)
        if report is None:
            return await self._show_request(request, visit, [])
        # A report doesn't say when its request ended; the list does, as far as it goes.
        newest = await self._state.browse(RequestQuery(key=report["key"], session=report["session"], limit=_PAGE))
        listed = [one for one in newest if one["request_id"] == report["request_id"]]
        return await self._show_request(request, visit, [*listed[:1], report])

    async def _show_request(self, request: Request, visit: Visit, found: list[dict[str, Any]]) -> Response:
        if not found:
            raise ApiError("not_found", "There is no report of this request: it is too old, or still running.")
        report = found[0]
        asked = Query(request_id=report["request_id"], key=report["key"], limit=_INCIDENTS_MAX)
        incidents = list(reversed(await self._state.browse(asked)))
        keep_text = self._context.overview.config().reliability.incidents.keep_text
        timeline = tell(report, incidents, keep_text=keep_text)
        url = f"{request.url.scheme}://{request.url.netloc}{find_root(request)}"
        return show_page(
            request,
            visit,
            "request.html",
            report=report,
            timeline=timeline,
            headers=write_headers(report, sum(attempt["ran"] for attempt in report["attempts"])),
            keep_text=keep_text,
            curl=write_curl(report, incidents, url, keyed=bool(visit.caller.name)),
        )

    async def _list_sessions(self, request: Request, visit: Visit) -> Response:
        before = _read_moment(request.query_params.get("before"))
        sessions = await self._state.browse(SessionQuery(before_s=before, limit=_PAGE))
        older = urlencode({"before": sessions[-1]["used_s"]}) if len(sessions) >= _PAGE else None
        return show_page(request, visit, "sessions.html", sessions=_arrange_helpers(sessions), older=older)

    async def _show_session(self, request: Request, visit: Visit) -> Response:
        name = request.path_params["session"]
        key = await find_key(self._state, visit.caller, request.query_params, "session", name)
        session = None if key is None else await self._state.session(key, name)
        if session is None:
            raise ApiError("not_found", _NO_SESSION)
        reports = await self._state.browse(RequestQuery(session=name, key=session["key"], limit=_REPORTS_MAX))
        loops = await self._state.browse(Query(session=name, key=session["key"], kind="loop", limit=_LOOPS))
        return show_page(
            request,
            visit,
            "session.html",
            session=session,
            tiers=_spend_by_tier(reports),
            reports=reports[:_LISTED],
            summed=len(reports),
            loops=loops,
        )

    async def _reset(self, request: Request, visit: Visit, form: Mapping[str, str]) -> Response:
        name = request.path_params["session"]
        key = await find_key(self._state, visit.caller, form, "session", name)
        if key is None:
            raise ApiError("not_found", _NO_SESSION)
        await self._state.reset(key, name)
        log_info("session_reset", by=visit.caller.name or None, session=session_tag(name))
        return go_to(request, f"/ui/requests?{urlencode({'session': name}, quote_via=quote)}")

    async def _count_incidents(self, request: Request, _: Visit) -> Response:
        """Answer with the chart's figures: how many of each kind in each piece of time."""
        long_s, piece_s = _SPANS.get(request.query_params.get("span", "day"), _SPANS["day"])
        until_s = (time.time() // piece_s + 1) * piece_s
        filters = _read_filters(request.query_params, _INCIDENT_FILTERS[:-1])
        span = TimeSpan(since_s=until_s - long_s, until_s=until_s, piece_s=piece_s, **filters)
        return json_response(_stack_counts(await self._state.count_incidents(span), span), headers=GUARDED)


def _arrange_helpers(sessions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put each agent's helpers below their agent, in their order. `below`: its agent is on the page, too."""
    named = {(one["key"], one["session"]) for one in sessions if one["parent"] is None}
    helpers: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in sessions:
        if (one["key"], one["parent"]) in named:
            helpers.setdefault((one["key"], one["parent"]), []).append({**one, "below": True})
    arranged: list[dict[str, Any]] = []
    for one in sessions:
        if (one["key"], one["parent"]) not in named:
            arranged += [{**one, "below": False}, *helpers.get((one["key"], one["session"]), ())]
    return arranged


def _spend_by_tier(reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sum up by tier what the calls of these requests have cost, the most tokens first."""
    nothing: dict[str, Any] = {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "cost_usd": None}
    spent: dict[str, dict[str, Any]] = {}
    for report in reports:
        for attempt in report["attempts"]:
            row = spent.setdefault(attempt["tier"], {"tier": attempt["tier"]} | nothing)
            usage = attempt["usage"] or {}
            row["calls"] += bool(attempt["ran"])
            row["prompt_tokens"] += usage.get("prompt_tokens", 0)
            row["completion_tokens"] += usage.get("completion_tokens", 0)
            if attempt["cost_usd"] is not None:
                row["cost_usd"] = (row["cost_usd"] or 0.0) + attempt["cost_usd"]
    return sorted(spent.values(), key=lambda row: -(row["prompt_tokens"] + row["completion_tokens"]))


def _stack_counts(counts: Sequence[tuple[int, str, int]], span: TimeSpan) -> dict[str, Any]:
    """Make series of counts: the pieces' moments, and for each kind that occurs its number in each piece."""
    pieces = int((span.until_s - span.since_s) / span.piece_s)
    series: dict[str, list[int]] = {}
    for piece, kind, count in counts:
        if 0 <= piece < pieces:
            series.setdefault(kind, [0] * pieces)[piece] += count
    found = [{"name": kind.value, "values": series[kind.value]} for kind in IncidentKind if kind.value in series]
    return {"at": [span.since_s + n * span.piece_s for n in range(pieces)], "series": found}


def _read_filters(params: Mapping[str, str], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := params.get(name, "").strip())}


def _read_number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else None


def _read_moment(text: str | None) -> float | None:
    try:
        moment = float(text or "nan")
    except ValueError:
        return None
    return moment if 0 <= moment < 2**53 else None
