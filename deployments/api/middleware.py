"""The Router's ASGI app: Starlette's, with what comes before any route.

Requests and changes that `access.py` refuses are a 403, also where there is no route. OPTIONS is answered without a
key. A trailing slash and `/v1/v1/` are mended, since clients don't follow a redirect of a POST. Invariants:
`Access-Control-Allow-Origin` is an allowed origin, and never `*`; no cookie is allowed across origins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from deployments.api.access import Access
from deployments.api.responses import error_response, find_inner_path, find_methods
from deployments.errors import ApiError

# What a page may read of an answer's headers, besides those that every page may.
EXPOSED = (
    *("X-MLX-Stack-Tier", "X-MLX-Stack-Escalated-From", "X-MLX-Stack-Escalation-Reason", "X-MLX-Stack-Retries"),
    *("X-MLX-Stack-Attempts", "X-MLX-Stack-Budget-Warning", "X-MLX-Stack-Memory-Pressure", "X-MLX-Stack-Loop"),
    *("X-MLX-Stack-Repaired", "X-MLX-Stack-Session", "X-MLX-Stack-Shortened", "x-request-id", "x-should-retry"),
    "retry-after",
)
# A page asks for the headers that it will send; any may come (`Authorization`, the openai client's `x-stainless-*`).
_ASKED_MAX, _ASKED_CHARS_MAX = 64, 4096
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TWICE = "/v1/v1/"
_PREFLIGHT_MAX_AGE_S = 600
_QUIET_ANSWER_BYTES, _HOLDS = 65_536, "mlx_stack.holds"


class MiddlewareApp(Starlette):
    """The app at the HTTP boundary. `access` is called at each request, since a `user_config` may change it."""

    def __init__(self, access: Callable[[], Access], **options: Any) -> None:
        super().__init__(**options)
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        self._tidy_path(scope)
        headers = Headers(scope=scope)
        if scope["method"] == "OPTIONS":
            await self._answer_options(scope, headers)(scope, receive, send)
            return
        origin = headers.get("origin")
        if origin is not None:
            send = _add_cors_headers(send, origin if self._access().lets_read(origin) else None)
        try:
            self._refuse(scope, headers)
        except ApiError as error:
            # In the shape that the app's routes give it.
            handler: Any = self.exception_handlers.get(ApiError)
            answer = error_response(error) if handler is None else await handler(Request(scope), error)
            await answer(scope, receive, send)
            return
        with ExitStack() as scope["mlx_stack.ending"]:
            await super().__call__(scope, receive, _await_taken(scope, send))

    def _refuse(self, scope: Scope, headers: Headers) -> None:
        access, client = self._access(), scope.get("client")
        access.guard(client[0] if client else None, headers)
        access.refuse_page(scope["method"], headers)

    def _answer_options(self, scope: Scope, headers: Headers) -> Response:
        try:
            self._refuse(scope, headers)
            methods = find_methods(self.routes, find_inner_path(scope))
            if "access-control-request-method" in headers:
                return self._answer_preflight(headers, methods or ["GET", "POST"])
            if not methods:
                raise ApiError("not_found", f"there is no route {find_inner_path(scope)}")
            return Response(status_code=204, headers={"allow": ", ".join(methods)})
        except ApiError as error:
            return error_response(error)

    def _answer_preflight(self, headers: Headers, methods: list[str]) -> Response:
        """Answer a preflight, also of a route that doesn't exist: else the browser keeps the 404 from its page."""
        origin = headers.get("origin", "")
        if not self._access().lets_read(origin):
            raise ApiError("forbidden", f"pages of {origin[:100]!r} may not ask: add it to server.cors_origins")
        allowed = {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": ", ".join(methods),
            "access-control-max-age": str(_PREFLIGHT_MAX_AGE_S),
            "vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
        }
        asked = headers.get("access-control-request-headers", "")[:_ASKED_CHARS_MAX].split(",")[:_ASKED_MAX]
        if names := [name.strip() for name in asked if _TOKEN.fullmatch(name.strip())]:
            allowed["access-control-allow-headers"] = ", ".join(names)
        if headers.get("access-control-request-private-network") == "true":
            allowed["access-control-allow-private-network"] = "true"
        return Response(status_code=204, headers=allowed)

    def _tidy_path(self, scope: MutableMapping[str, Any]) -> None:
        path = find_inner_path(scope)
        if path.startswith(_TWICE):
            at = scope["path"].rindex(path)
            scope["path"] = scope["path"][:at] + path[len(_TWICE) - len("/v1/") :]
            path = find_inner_path(scope)
        if path.endswith("/") and any(self._is_route(route, path[:-1]) for route in self.routes):
            scope["path"] = scope["path"][:-1]

    def _is_route(self, route: BaseRoute, path: str) -> bool:
        """Tell whether a route has this path. One that ends in a name of any form has slashes of its own."""
        return isinstance(route, Route) and not route.path.endswith(":path}") and bool(route.path_regex.match(path))


def find_ending(scope: Scope) -> ExitStack:
    """Return what is closed once the client has taken the request's answer, however the request ends."""
    ending: ExitStack = scope["mlx_stack.ending"]
    scope[_HOLDS] = True
    return ending


def _await_taken(scope: Scope, send: Send) -> Send:
    """Wrap `send` so that a large answer of a request that holds something isn't over before its client takes it: only
    a second piece waits for that."""

    async def send_apart(message: Message) -> None:
        size = len(message.get("body", b""))
        if size > _QUIET_ANSWER_BYTES and _HOLDS in scope and not message.get("more_body"):
            await send({**message, "more_body": True})
            message = {**message, "body": b""}
        await send(message)

    return send_apart


def _add_cors_headers(send: Send, origin: str | None) -> Send:
    """Wrap `send` with the headers that give the answer to a page of `origin`; None: it may not have it."""

    async def send_marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", [])))
            headers.add_vary_header("Origin")
            if origin is not None:
                headers["access-control-allow-origin"] = origin
                headers["access-control-expose-headers"] = ", ".join(EXPOSED)
            message = {**message, "headers": headers.raw}
        await send(message)

    return send_marked
