"""What every page works with: who looks, what the server knows, and how an answer is made of both.

    look(view)    ──▶ a page: `view(request, visit)` for whoever may look; else the way to sign in
    order(view)   ──▶ an order: `view(request, visit, form)` for whoever brings the page's token

An order that htmx sends is answered with a piece of the page; a form's, where scripts are off, with the page itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from deployments.api.overview import Overview
from deployments.errors import ApiError
from deployments.state.client import State
from deployments.state.link import StateUnavailable
from deployments.ui.rendering import GUARDED, find_digest, render, respond
from deployments.ui.visits import NotSignedIn, Visit, Visits, find_root

__all__ = ["Desk", "explain"]

Look = Callable[[Request, Visit], Awaitable[Response]]
Order = Callable[[Request, Visit, Mapping[str, str]], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]
SILENT = "The state actor doesn't answer; it is restarted within seconds. Load the page again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Shared by all pages of one Router replica."""

    visits: Visits
    state: State
    overview: Overview

    def look(self, view: Look) -> Endpoint:
        """Make the endpoint of a page."""

        async def show(request: Request) -> Response:
            try:
                visit = await self.visits.open_page(request)
                response = await view(request, visit)
            except NotSignedIn:
                return _send_to_sign_in(request)
            except (ApiError, StateUnavailable) as error:
                return self.explain(request, error)
            if visit.fresh is not None:
                self.visits.set_cookie(request, response, visit.fresh)
            return response

        return show

    def order(self, view: Order) -> Endpoint:
        """Make the endpoint of an order."""

        async def act(request: Request) -> Response:
            try:
                visit, form = await self.visits.take_order(request)
                return await view(request, visit, form)
            except NotSignedIn:
                return _send_to_sign_in(request)
            except (ApiError, StateUnavailable) as error:
                return self.explain(request, error)

        return act

    def show(
        self, request: Request, visit: Visit | None, template: str, *, status: int = 200, **values: Any
    ) -> Response:
        """Answer with a page."""
        return respond(render(template, **build_frame(request, visit), **values), status=status)

    def go(self, request: Request, path: str) -> Response:
        """Answer an order with the way to a page."""
        to = find_root(request) + path
        if "hx-request" in request.headers:
            return Response(status_code=204, headers=GUARDED | {"hx-redirect": to})
        return RedirectResponse(to, status_code=303, headers=GUARDED)

    def explain(self, request: Request, error: ApiError | StateUnavailable) -> Response:
        """Answer with what went wrong, in words."""
        status, words = (error.status, error.message) if isinstance(error, ApiError) else (503, SILENT)
        return explain(request, status, words)


def build_frame(request: Request, visit: Visit | None) -> dict[str, Any]:
    """Build what every template needs."""
    root = find_root(request)
    return {
        "root": root,
        "assets": f"{root}/ui/assets/{find_digest()}",
        "path": request.url.path.removeprefix(root) or "/",
        "visit": visit,
    }


def explain(request: Request, status: int, words: str) -> Response:
    """Answer with a page that says what is wrong."""
    return respond(render("fault.html", **build_frame(request, None), status=status, words=words), status=status)


def _send_to_sign_in(request: Request) -> Response:
    root = find_root(request)
    here = request.url.path.removeprefix(root) + (f"?{request.url.query}" if request.url.query else "")
    to = f"{root}/ui/sign-in?next={quote(here)}"
    if "hx-request" in request.headers:
        return Response(status_code=401, headers=GUARDED | {"hx-redirect": to})
    return RedirectResponse(to, status_code=303, headers=GUARDED)
