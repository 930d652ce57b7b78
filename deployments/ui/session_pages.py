"""`/ui/sessions` and `/ui/sessions/{name}`: who spent what of which budget, on which tier, in which requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.admin import find_key
from deployments.errors import ApiError
from deployments.state.history import RequestQuery, SessionQuery
from deployments.state.records import Query
from deployments.telemetry import log_info, session_tag
from deployments.ui.desk import Desk
from deployments.ui.visits import Visit

__all__ = ["SessionPages", "spend_by_tier"]

PAGE = 50
# What of a session is summed up by tier, and how much of it is listed.
REPORTS_MAX, LISTED, LOOPS = 500, 30, 20


class SessionPages:
    """The two pages, and the order to forget what a session has spent."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[Route]:
        """List them, below `/ui`."""
        return [
            Route("/sessions", self._desk.look(self.show_list)),
            Route("/sessions/{session:path}/reset", self._desk.order(self.reset), methods=["POST"]),
            Route("/sessions/{session:path}", self._desk.look(self.show)),
        ]

    async def show_list(self, request: Request, visit: Visit) -> Response:
        """List them, the one that was used last first."""
        before = _read_moment(request.query_params.get("before"))
        sessions = await self._desk.state.browse(SessionQuery(before_s=before, limit=PAGE))
        older = urlencode({"before": sessions[-1]["used_s"]}) if len(sessions) >= PAGE else None
        return self._desk.show(request, visit, "sessions.html", sessions=sessions, older=older)

    async def show(self, request: Request, visit: Visit) -> Response:
        """Show one."""
        name = request.path_params["session"]
        key = await find_key(self._desk.state, visit.caller, request.query_params, "session", name)
        session = None if key is None else await self._desk.state.session(key, name)
        if session is None:
            raise ApiError("not_found", "There is no session of this name: it is too old, or was reset.")
        reports = await self._desk.state.browse(RequestQuery(session=name, key=session["key"], limit=REPORTS_MAX))
        loops = await self._desk.state.browse(Query(session=name, key=session["key"], kind="loop", limit=LOOPS))
        return self._desk.show(
            request,
            visit,
            "session.html",
            session=session,
            tiers=spend_by_tier(reports),
            reports=reports[:LISTED],
            summed=len(reports),
            loops=loops,
        )

    async def reset(self, request: Request, visit: Visit, form: Mapping[str, str]) -> Response:
        """Forget what one has spent."""
        name = request.path_params["session"]
        key = await find_key(self._desk.state, visit.caller, form, "session", name)
        if key is None:
            raise ApiError("not_found", "There is no session of this name: it is too old, or was reset.")
        await self._desk.state.reset(key, name)
        log_info("session_reset", by=visit.caller.name or None, session=session_tag(name))
        return self._desk.go(request, f"/ui/requests?{urlencode({'session': name}, quote_via=quote)}")


def spend_by_tier(reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sum up by tier what the calls of these requests have cost, the most tokens first."""
    spent: dict[str, dict[str, Any]] = {}
    for report in reports:
        for attempt in report["attempts"]:
            row = spent.setdefault(
                attempt["tier"],
                {"tier": attempt["tier"], "calls": 0, "prompt_tokens": 0, "completion_tokens": 0, "cost_usd": None},
            )
            usage = attempt["usage"] or {}
            row["calls"] += bool(attempt["ran"])
            row["prompt_tokens"] += usage.get("prompt_tokens", 0)
            row["completion_tokens"] += usage.get("completion_tokens", 0)
            if attempt["cost_usd"] is not None:
                row["cost_usd"] = (row["cost_usd"] or 0.0) + attempt["cost_usd"]
    return sorted(spent.values(), key=lambda row: -(row["prompt_tokens"] + row["completion_tokens"]))


def _read_moment(text: str | None) -> float | None:
    try:
        moment = float(text or "nan")
    except ValueError:
        return None
    return moment if 0 <= moment < 2**53 else None
