"""The control room: all pages below `/ui`, and the one at `/`, as one app inside of the Router's.

    /                      Now                /ui/incidents     what went wrong, over time
    /ui/requests           what has finished  /ui/tiers         isolate, restore, close a breaker
    /ui/requests/{id}      one, as a timeline /ui/memory        who holds what, what waits and why
    /ui/sessions           who spent what     /ui/try           a small chat against any tier
    /ui/evaluations        kept reports       /ui/assets        the files
    /ui/sign-in, sign-out  the cookie (`page_auth.py`)

It asks the same sources as the API's routes for operators, so a page and a command never disagree. The chat's script
asks `/ui/try/ask` as a client asks `/v1/chat/completions`: the request's way, budget and report are those of any other.
The person at the page plays the tools. Three examples make the server act.
Invariants: no work on a request's way; no page holds a Router back from its stop; a kept report, which was made to be
opened from a disk, gets a sandbox policy, so that it never runs in this origin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from deployments.api.access import Access, Caller
from deployments.api.exchange import EventStream
from deployments.api.overview import Overview
from deployments.api.responses import error_response, find_inner_path, find_methods
from deployments.errors import ApiError
from deployments.evaluate.kept_reports import find_kept_folder, list_kept, read_kept
from deployments.telemetry import log_error, log_info, log_warning
from deployments.ui.history_pages import HistoryPages
from deployments.ui.live import UNBUFFERED, LivePages, render_pieces
from deployments.ui.page_auth import NotSignedIn, Visit, Visits, find_root
from deployments.ui.page_context import ASSETS, GUARDED, PageContext, explain, go_to, read_asset, show_page
from deployments.ui.tier_pages import TierPages
from reliability.loops.thresholds import LoopConfig

# The style sheet is in the file, which names its digest in a policy of its own; a browser holds it to both.
_SANDBOXED = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox"
}
_TYPES = {"report.html": "text/html", "report.md": "text/plain", "report.json": "application/json"}

_Chat = Callable[[Request, Caller], Awaitable[Response]]
_TOOLS = """[
  {"type": "function", "function": {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {
      "type": "object",
      "properties": {"city": {"type": "string"}},
      "required": ["city"],
      "additionalProperties": false
    }
  }}
]"""
_FUNCTION = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}


class ControlRoom:
    """The pages of one Router replica. `chat` answers a chat completion of a caller who is known already."""

    def __init__(self, *, access: Callable[[], Access], overview: Overview, chat: _Chat) -> None:
        self._visits, self._overview, self._chat = Visits(access, overview.state), overview, chat
        self._live = LivePages(overview)
        context = PageContext(visits=self._visits, overview=overview)
        self.show_now = context.look(self._show_now)
        self._routes = [
            Route("/", self.show_now),
            Route("/sign-in", _show_sign_in),
            Route("/sign-in", self._sign_in, methods=["POST"]),
            Route("/sign-out", context.order(self._sign_out), methods=["POST"]),
            Route("/events", context.look(self._stream)),
            *HistoryPages(context).routes(),
            *TierPages(context).routes(),
            Route("/try", context.look(self._show_try)),
            Route("/try/ask", self._ask, methods=["POST"]),
            Route("/evaluations", context.look(_list_evaluations)),
            Route("/evaluations/{name}/{part}", context.look(_send_evaluation)),
            Route("/assets/{digest}/{name}", _send_asset),
        ]

    def mount(self) -> Mount:
        """Return it as a part of the Router's app."""
        handlers = {HTTPException: _explain_http, Exception: _explain_bug}
        return Mount("/ui", app=Starlette(routes=self._routes, exception_handlers=handlers))

    async def _show_now(self, request: Request, visit: Visit) -> Response:
        pieces = render_pieces(await self._overview.take(), await self._overview.take_day(), find_root(request))
        return show_page(request, visit, "now.html", pieces=pieces)

    async def _stream(self, request: Request, _: Visit) -> Response:
        frames = self._live.watch(find_root(request), lambda: self._visits.may_look(request))
        return EventStream(frames, GUARDED | UNBUFFERED)

    async def _show_try(self, request: Request, visit: Visit) -> Response:
        examples = _list_examples(self._overview.config().reliability.loop_detection)
        return show_page(request, visit, "try.html", tiers=self._overview.tiers, tools=_TOOLS, examples=examples)

    async def _ask(self, request: Request) -> Response:
        """Answer what the chat asks; errors as the API has them, since a script reads them."""
        try:
            visit = await self._visits.take_call(request)
            return await self._chat(request, visit.caller)
        except NotSignedIn:
            return error_response(ApiError("invalid_api_key", "sign in first"))
        except ApiError as error:
            return error_response(error)

    async def _sign_in(self, request: Request) -> Response:
        try:
            form = await self._visits.read_form(request)
            cookie = await self._visits.sign_in(request, form.get("key", ""))
        except ApiError as error:
            return explain(request, error)
        to = _choose_next(form.get("next", "/"))
        if cookie is None:
            log_warning("sign_in_refused")
            return show_page(request, None, "sign_in.html", status=401, next=to, wrong=True)
        log_info("signed_in")
        response = go_to(request, to)
        self._visits.set_cookie(request, response, cookie)
        return response

    async def _sign_out(self, request: Request, visit: Visit, _: Mapping[str, str]) -> Response:
        """End the cookie, also for whoever has a copy of it, and take it away."""
        await self._visits.sign_out(visit)
        response = go_to(request, "/ui/sign-in")
        self._visits.set_cookie(request, response, None)
        return response


def _list_examples(loops: LoopConfig) -> list[dict[str, Any]]:
    return [
        {"label": "Repair a tool call", "messages": [_ask("What is the weather in Oslo? Call get_weather.")]},
        {"label": "Nudge a loop", "messages": _repeat(loops.duplicate_threshold)},
        {"label": "Escalate a loop", "messages": _repeat(loops.break_threshold)},
    ]


def _ask(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


def _repeat(count: int) -> list[dict[str, Any]]:
    """Return a conversation in which an agent has made the same call `count` times, each with the same result."""
    messages = [_ask("What is the weather in Oslo?")]
    for number in range(count):
        call = {"id": f"call-{number}", "type": "function", "function": _FUNCTION}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "error: no such city"})
    return messages


async def _list_evaluations(request: Request, visit: Visit) -> Response:
    kept = await asyncio.to_thread(list_kept, find_kept_folder())
    return show_page(request, visit, "evaluations.html", kept=kept)


async def _send_evaluation(request: Request, _: Visit) -> Response:
    name, part = request.path_params["name"], request.path_params["part"]
    data = await asyncio.to_thread(read_kept, find_kept_folder(), name, part)
    if data is None:
        raise ApiError("not_found", "There is no report of this name: it is too old, or of another machine.")
    return Response(data, media_type=_TYPES[part], headers=GUARDED | _SANDBOXED)


async def _show_sign_in(request: Request) -> Response:
    return show_page(request, None, "sign_in.html", next=request.query_params.get("next", "/"), wrong=False)


def _choose_next(given: str) -> str:
    """Choose the page to go on with: one of this server's own, whatever a link says."""
    own = given.startswith("/") and not given.startswith(("//", "/\\"))
    return given if own and given.isprintable() else "/"


async def _send_asset(request: Request) -> Response:
    """Send a file: the same for everybody, so that the page to sign in has its looks."""
    name = request.path_params["name"]
    if name not in ASSETS:
        raise HTTPException(404)
    return read_asset(name)


async def _explain_http(request: Request, error: Exception) -> Response:
    """Explain a path that no route has, or a method that its routes don't take."""
    if getattr(error, "status_code", 404) != 405:
        return explain(request, ApiError("not_found", "There is no such page."))
    response = explain(request, ApiError("method_not_allowed", "That isn't possible here."))
    response.headers["allow"] = ", ".join(find_methods(request.app.routes, find_inner_path(request.scope)))
    return response


async def _explain_bug(request: Request, error: Exception) -> Response:
    log_error("page_failed", error, path=request.url.path)
    return explain(request, ApiError("internal_error", "An error inside the server; its log says more."))
