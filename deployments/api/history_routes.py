"""What has been and what is, as lists: `GET /v1/reliability/requests`, `/sessions` and `/live`.

As with the other routes for operators, who has no admin's key sees what came with its own. `live` is the picture that
the control room shows (`overview.py`), for programs that poll it: looking is what makes the server draw it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.access import Access, Caller
from deployments.api.admin import await_state, choose_scope, parse_limit, parse_number, refuse_unknown
from deployments.api.overview import Overview
from deployments.api.responses import json_response
from deployments.state.history import RequestQuery, SessionQuery

__all__ = ["HistoryRoutes"]

REQUEST_FILTERS = ("session", "tier", "outcome", "mark", "key", "since", "until", "before", "after", "limit")
SESSION_FILTERS = ("key", "before", "limit")


class HistoryRoutes:
    """The routes. `access` is called at each request, since a `user_config` may change it."""

    def __init__(self, overview: Overview, access: Callable[[], Access]) -> None:
        self._overview, self._access = overview, access

    def routes(self) -> list[Route]:
        """List them for the Router's app."""
        at = "/v1/reliability"
        return [
            Route(f"{at}/requests", self.requests),
            Route(f"{at}/sessions", self.sessions),
            Route(f"{at}/live", self.live),
        ]

    async def requests(self, request: Request) -> Response:
        """List the newest finished requests first, filtered and in pages: `next` is the `before` of the page that
        follows."""
        caller, params = self._identify_caller(request), request.query_params
        refuse_unknown(params, REQUEST_FILTERS)
        before, after = parse_number(params, "before", None), parse_number(params, "after", None)
        query = RequestQuery(
            key=_choose_key(caller, params),
            session=params.get("session"),
            tier=params.get("tier"),
            outcome=params.get("outcome"),
            mark=params.get("mark"),
            since_s=parse_number(params, "since", None),
            until_s=parse_number(params, "until", None),
            before=None if before is None else int(before),
            after=None if after is None else int(after),
            limit=parse_limit(params),
        )
        found = await await_state(self._overview.state.browse(query))
        return json_response(_make_page(found, query.limit, "id"))

    async def sessions(self, request: Request) -> Response:
        """List sessions, the one that was used last first, in pages in the same way."""
        caller, params = self._identify_caller(request), request.query_params
        refuse_unknown(params, SESSION_FILTERS)
        query = SessionQuery(
            key=_choose_key(caller, params), before_s=parse_number(params, "before", None), limit=parse_limit(params)
        )
        found = await await_state(self._overview.state.browse(query))
        return json_response(_make_page(found, query.limit, "used_s"))

    async def live(self, request: Request) -> Response:
        """Answer with the server at this moment: tiers, what runs, what has just finished, memory."""
        self._access().require_admin(self._identify_caller(request))
        day = await self._overview.take_day()
        return json_response({**await self._overview.take(), "day": day})

    def _identify_caller(self, request: Request) -> Caller:
        access = self._access()
        access.guard(request.client.host if request.client else None, request.headers)
        return access.caller(request.headers)


def _choose_key(caller: Caller, params: Mapping[str, str]) -> str | None:
    """Choose whose things are listed: an admin may name somebody."""
    return params.get("key") if caller.admin else choose_scope(caller)


def _make_page(found: list[dict[str, Any]], limit: int, by: str) -> dict[str, Any]:
    more = found[-1][by] if len(found) >= limit else None
    return {"object": "list", "data": found, "next": more}
