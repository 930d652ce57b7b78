"""The app and the routes of a Router, without the server behind them."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from deployments.api.access import Access
from deployments.api.body import Bodies
from deployments.api.openai_responses.stored_responses import StoredResponses
from deployments.app.router import Router
from deployments.ui.control_room import ControlRoom


def build_app(access: Access, state: Any = None, slots: int = 8) -> Starlette:
    """The app of a Router, whose routes answer what `state` has stored; one key may use so many `slots`."""
    router: Any = object.__new__(Router)
    router._live = SimpleNamespace(access=access)
    router._overview = SimpleNamespace(state=state)
    router._stored, router._bodies = StoredResponses(state), Bodies(slots, of_key_max=slots)
    router._room = ControlRoom(access=lambda: access, overview=router._overview, chat=None)  # type: ignore[arg-type]
    app: Starlette = router.__serve_build_asgi_app__()
    return app


def ask_app(app: ASGIApp, method: str, path: str, *, root: str = "", **sent: Any) -> httpx.Response:
    """Ask an app itself, as a client on this machine; it is served under the path `root`."""

    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, root_path=root)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http:
            return await http.request(method, f"{root}{path}", **sent)

    return asyncio.run(go())


def list_routes() -> list[tuple[str, str]]:
    """Method and path of every route that a Router has, without what Starlette adds to them, nor the pages."""
    return _list(build_app(Access(())).routes)


def list_all_routes() -> list[tuple[str, str]]:
    """Method and path of every route that a Router has, the pages too."""
    routes = build_app(Access(())).routes
    mounted = [(mount.path, mount.routes) for mount in routes if isinstance(mount, Mount)]
    return _list(routes) + [(method, at + path) for at, inner in mounted for method, path in _list(inner)]


def _list(routes: Sequence[BaseRoute]) -> list[tuple[str, str]]:
    found = [route for route in routes if isinstance(route, Route)]
    return [(method, route.path) for route in found for method in sorted((route.methods or set()) - {"HEAD"})]
