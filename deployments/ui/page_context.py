"""What every page of the control room works with: who looks, what the server knows, templates, files and headers.

`look(view)` makes a page of `view(request, visit)`; `order(view)` makes an order of `view(request, visit, form)`, which
must bring the page's token. Styles and scripts (htmx and uPlot as published) are in `static/`; a file's address has the
digest of all files, so browsers may keep it for good.
Invariants: no script and no style inside a page (the policy lets none in); each text is escaped.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from deployments import __version__
from deployments.api.overview import Overview
from deployments.errors import ApiError
from deployments.state.link import StateUnavailable
from deployments.ui.formatting import FILTERS
from deployments.ui.page_auth import NotSignedIn, Visit, Visits, find_root

_HERE = Path(__file__).parent
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}
ASSETS = {path.name: _TYPES[path.suffix] for path in (_HERE / "static").iterdir()}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
GUARDED = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with `no-referrer` a form's Origin would be `null`
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_FOREVER = GUARDED | {"cache-control": "public, max-age=31536000, immutable"}


@functools.cache
def _build_environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(FILTERS)
    made.globals["version"] = __version__
    made.globals["parts"] = made.get_template("parts.html").module
    return made


def render(template: str, **values: Any) -> str:
    """Render a template."""
    return _build_environment().get_template(template).render(**values)


@functools.cache
def _find_digest() -> str:
    """Return the digest of all files: another one with each change of any of them."""
    files = [(_HERE / "static" / name).read_bytes() for name in sorted(ASSETS)]
    return hashlib.sha256(b"\0".join(files)).hexdigest()[:12]


@functools.cache
def read_asset(name: str) -> Response:
    """Read a file of the pages; raise KeyError for an unknown name."""
    return Response((_HERE / "static" / name).read_bytes(), media_type=ASSETS[name], headers=_FOREVER)


_Look = Callable[[Request, Visit], Awaitable[Response]]
_Order = Callable[[Request, Visit, Mapping[str, str]], Awaitable[Response]]
_Endpoint = Callable[[Request], Awaitable[Response]]
_SILENT = "The state actor doesn't answer; it is restarted within seconds. Load the page again."


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContext:
    """Shared by all pages of one Router replica."""

    visits: Visits
    overview: Overview

    def look(self, view: _Look) -> _Endpoint:
        async def show(request: Request) -> Response:
            visit = await self.visits.open_page(request)
            response = await view(request, visit)
            if visit.fresh is not None:
                self.visits.set_cookie(request, response, visit.fresh)
            return response

        return self._guard(show)

    def order(self, view: _Order) -> _Endpoint:
        async def act(request: Request) -> Response:
            visit, form = await self.visits.take_order(request)
            return await view(request, visit, form)

        return self._guard(act)

    def _guard(self, endpoint: _Endpoint) -> _Endpoint:
        async def answer(request: Request) -> Response:
            try:
                return await endpoint(request)
            except NotSignedIn:
                root, query = find_root(request), request.url.query
                here = request.url.path.removeprefix(root) + (f"?{query}" if query else "")
                return _redirect(request, f"{root}/ui/sign-in?next={quote(here)}", 401)
            except (ApiError, StateUnavailable) as error:
                return explain(request, error)

        return answer


def show_page(request: Request, visit: Visit | None, template: str, *, status: int = 200, **known: Any) -> Response:
    """Answer with a page."""
    root = find_root(request)
    frame = {"root": root, "assets": f"{root}/ui/assets/{_find_digest()}", "visit": visit, "status": status}
    page = render(template, path=request.url.path.removeprefix(root) or "/", **frame, **known)
    return Response(page, status_code=status, media_type="text/html", headers=GUARDED)


def explain(request: Request, error: ApiError | StateUnavailable) -> Response:
    """Answer with a page that says what is wrong."""
    status, words = (error.status, error.message) if isinstance(error, ApiError) else (503, _SILENT)
    return show_page(request, None, "fault.html", status=status, words=words)


def go_to(request: Request, path: str) -> Response:
    """Answer an order with the way to a page: htmx follows a header, a form a redirect."""
    return _redirect(request, find_root(request) + path, 204)


def _redirect(request: Request, to: str, status: int) -> Response:
    if "hx-request" in request.headers:
        return Response(status_code=status, headers=GUARDED | {"hx-redirect": to})
    return RedirectResponse(to, status_code=303, headers=GUARDED)
