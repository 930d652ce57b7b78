"""The control room: all pages below `/ui`, and the one at `/`, as one app inside of the Router's.

    /                      Now                /ui/incidents     what went wrong, over time
    /ui/requests           what has finished  /ui/tiers         isolate, restore, close a breaker
    /ui/requests/{id}      one, as a timeline /ui/memory        who holds what, what waits and why
    /ui/sessions           who spent what     /ui/try           a small chat against any tier
    /ui/evaluations        kept reports       /ui/assets        the files
    /ui/sign-in, sign-out  the cookie

With API keys an admin's key opens it; without, whoever is on this machine (`visits.py`). It asks the same sources as
the API's routes for operators, so a page and a command never disagree.

What must never happen: work on the way of a request, a page that holds a Router back from its stop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from deployments.api.access import Access
from deployments.api.overview import Overview
from deployments.api.responses import find_inner_path, find_methods
from deployments.telemetry import log_error
from deployments.ui.desk import Desk, explain
from deployments.ui.evaluation_pages import EvaluationPages
from deployments.ui.incident_pages import IncidentPages
from deployments.ui.now_page import NowPage
from deployments.ui.rendering import ASSETS, read_asset
from deployments.ui.request_pages import RequestPages
from deployments.ui.session_pages import SessionPages
from deployments.ui.sign_in_page import SignInPage
from deployments.ui.tier_pages import TierPages
from deployments.ui.try_page import Chat, TryPage
from deployments.ui.visits import Visits

__all__ = ["ControlRoom", "wants_page"]


class Part(Protocol):
    """One page, or a few that belong together."""

    def routes(self) -> list[Route]:
        """List its routes, below `/ui`."""
        ...


def wants_page(request: Request) -> bool:
    """Tell whether a person asks, with a browser, and not an agent that looks whether anybody is there."""
    return "text/html" in request.headers.get("accept", "")


class ControlRoom:
    """The pages of one Router replica. `chat` answers a chat completion of a caller who is known already."""

    def __init__(self, *, access: Callable[[], Access], overview: Overview, chat: Chat) -> None:
        desk = Desk(visits=Visits(access, overview.state), state=overview.state, overview=overview)
        self._now = NowPage(desk)
        parts: list[Part] = [self._now, SignInPage(desk), RequestPages(desk), SessionPages(desk), IncidentPages(desk)]
        parts += [TierPages(desk), EvaluationPages(desk), TryPage(desk, chat)]
        self._routes = [route for part in parts for route in part.routes()]
        self.show_now = desk.look(self._now.show)

    def mount(self) -> Mount:
        """Return it as a part of the Router's app."""
        routes = [Route("/", self.show_now), *self._routes, Route("/assets/{digest}/{name}", self._send_asset)]
        handlers = {HTTPException: _explain_http, Exception: _explain_bug}
        return Mount("/ui", app=Starlette(routes=routes, exception_handlers=handlers))

    async def _send_asset(self, request: Request) -> Response:
        """Send a file: the same for everybody, so that the page to sign in has its looks."""
        name = request.path_params["name"]
        if name not in ASSETS:
            raise HTTPException(404)
        return read_asset(name)


async def _explain_http(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    words = "There is no such page." if status == 404 else "That isn't possible here."
    response = explain(request, status, words)
    if status == 405:
        response.headers["allow"] = ", ".join(find_methods(request.app.routes, find_inner_path(request.scope)))
    return response


async def _explain_bug(request: Request, error: Exception) -> Response:
    log_error("page_failed", error, path=request.url.path)
    return explain(request, 500, "An error inside the server; its log says more.")
