"""The routes under `/v1/reliability/`: reports, sessions, incidents, tiers, the lists of them, and the live picture.

A caller sees what came with its own key; incidents, tiers and every change need an admin key. Ids of requests and names
of sessions are the clients': where several keys have the same one, an admin must say whose is meant.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Literal, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.access import Access, Caller
from deployments.api.overview import Overview
from deployments.api.responses import json_response
from deployments.errors import ApiError, refuse
from deployments.state.client import State
from deployments.state.history import LIST_BYTES_MAX, RequestQuery, SessionQuery
from deployments.state.link import StateUnavailable
from deployments.state.records import Query
from deployments.telemetry import log_error, log_info
from deployments.work.json_text import write_json
from reliability.admission.events import Order, OrderKind

ORDERS: dict[OrderKind, str] = {"isolate": "isolated", "restore": "restored", "close": "closed"}
_NUMBERS = ("since", "until", "before", "after")
_LIMIT_MAX = 500
_KEYS_SHOWN = 20
LIMIT = 50
_BACK_S = 2.0
_T = TypeVar("_T")
_AnyQuery = TypeVar("_AnyQuery", Query, RequestQuery, SessionQuery)
# Identifies who reads, and counts an answer of so many bytes at most for its key, until it is taken.
Admit = Callable[[Request, int], Awaitable[Caller]]


class Insight:
    """The routes. `access` is called at each request, since a `user_config` may change it."""

    def __init__(self, overview: Overview, access: Callable[[], Access], admit: Admit) -> None:
        self._overview, self._access, self._admit, self._state = overview, access, admit, overview.state

    def routes(self) -> list[Route]:
        at = "/v1/reliability"
        return [
            Route(f"{at}/requests/{{request_id:path}}", partial(self._show, "request")),
            Route(f"{at}/sessions/{{session:path}}/reset", self.reset, methods=["POST"]),
            Route(f"{at}/sessions/{{session:path}}", partial(self._show, "session")),
            Route(f"{at}/requests", partial(self._list, RequestQuery, "id")),
            Route(f"{at}/sessions", partial(self._list, SessionQuery, "used_s")),
            Route(f"{at}/live", self.live),
            Route(f"{at}/incidents", partial(self._list, Query, "id")),
            Route(f"{at}/tiers", self.tiers),
            *(
                Route(f"{at}/tiers/{{tier}}/{kind}", partial(self._order, kind, word), methods=["POST"])
                for kind, word in ORDERS.items()
            ),
        ]

    async def _show(self, kind: Literal["request", "session"], request: Request) -> Response:
        """Answer with the report of one finished request, or what one session has done, spent and reserved."""
        return json_response(await self._find(request, await self._admit(request, 0), kind))

    async def tiers(self, request: Request) -> Response:
        """List each tier: its own status, and its breaker."""
        self._access().identify_admin(request)
        described = [self._overview.describe_tier(name) for name in self._overview.tiers]
        return json_response({"object": "list", "data": described})

    async def reset(self, request: Request) -> Response:
        caller, name = self._access().identify_admin(request), request.path_params["session"]
        found = await self._find(request, caller, "session")
        await await_state(self._state.reset(found["key"], name))
        log_info("session_reset", by=caller.name or None)
        return json_response({"session": name, "key": found["key"], "reset": True})

    async def _find(self, request: Request, caller: Caller, kind: Literal["request", "session"]) -> dict[str, Any]:
        (name,) = request.path_params.values()
        key = await find_key(self._state, caller, request.query_params, kind, name)
        ask = self._state.report if kind == "request" else self._state.session
        found = None if key is None else await await_state(ask(key, name))
        if found is None:
            what = "report of request" if kind == "request" else "session"
            raise ApiError("not_found", f"there is no {what} {name!r}")
        return found

    async def _order(self, kind: OrderKind, word: str, request: Request) -> Response:
        """Keep all calls off one tier, lift the hold, or close its breaker: calls go through again at once."""
        caller = self._access().identify_admin(request)
        tier = request.path_params["tier"]
        if tier not in self._overview.tiers:
            raise ApiError("not_found", f"there is no tier {tier!r}; tiers: {', '.join(self._overview.tiers)}")
        await await_state(self._state.order(Order(tier, kind)))
        log_info(f"tier_{word}", tier=tier, by=caller.name or None)
        return json_response({"tier": tier, word: True})

    async def _list(self, kind: type[_AnyQuery], by: str, request: Request) -> Response:
        """List the newest requests or incidents, or the sessions used last, first: `next` is the `before` of the next
        page. Incidents are an admin's."""
        if kind is Query:
            self._access().identify_admin(request)
        caller, params = await self._admit(request, LIST_BYTES_MAX), request.query_params
        query = _read_query(kind, params, key=params.get("key") if caller.admin else caller.name)
        found = await await_state(self._state.browse(query))
        cut = len(found) >= query.limit or len(write_json(found)) >= LIST_BYTES_MAX
        more = found[-1][by] if found and cut else None
        return json_response({"object": "list", "data": found, "next": more})

    async def live(self, request: Request) -> Response:
        """Answer with the server at this moment: tiers, what runs, what has just finished, memory."""
        self._access().identify_admin(request)
        day = await self._overview.take_day()
        return json_response({**await self._overview.take(), "day": day})


async def find_key(
    state: State, caller: Caller, params: Mapping[str, str], kind: Literal["request", "session"], name: str
) -> str | None:
    """Find the API key whose request or session is meant: the caller's own, the one that an admin names, or the only
    one; None where no key has it. Raises `ApiError`: `invalid_request`: several keys have it, and none is named."""
    if not caller.admin or "key" in params:
        return params["key"] if caller.admin else caller.name
    keys = await await_state(state.find_keys(kind, name))
    if len(keys) > 1:
        listed = ", ".join(f"?key={key}" for key in keys[:_KEYS_SHOWN]) + (", ..." if len(keys) > _KEYS_SHOWN else "")
        words = f"{len(keys)} API keys have a {kind} {name!r}: name one ({listed})"
        raise ApiError("invalid_request", words, param="key")
    return keys[0] if keys else None


def _read_query(kind: type[_AnyQuery], params: Mapping[str, str], **own: Any) -> _AnyQuery:
    """Read the filters of a list: the fields of its query, seconds without their `_s`. Raises `ApiError`."""
    known = {field.name.removesuffix("_s"): field.name for field in fields(kind)}
    for name in params:
        if name not in known:
            raise refuse(name, f"unknown; known: {', '.join(sorted(known))}")
    found: dict[str, Any] = {}
    for name, text in params.items():
        found[known[name]] = text
        if name in (*_NUMBERS, "limit"):
            number = _parse_number(name, text)
            found[known[name]] = number if known[name].endswith("_s") else int(number)
    found["limit"] = max(1, min(_LIMIT_MAX, found.get("limit") or LIMIT))
    return kind(**found | own)


def _parse_number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < 2**53:
        raise refuse(name, f"a number is needed (got {text[:40]!r})")
    return number


async def await_state(question: Awaitable[_T]) -> _T:
    """Await the state's answer, or raise a 503 that says when to come back."""
    try:
        return await question
    except StateUnavailable as error:
        log_error("state_silent", error)
        words = "the state actor doesn't answer; it is restarted within seconds"
        raise ApiError("no_tier_available", words, retry_after_s=_BACK_S) from None
