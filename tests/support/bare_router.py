"""The routes of a Router, without the server behind them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from starlette.routing import Route

from deployments.api.access import Access
from deployments.api.admin import Insight
from deployments.api.openai_responses.stored_responses import StoredResponses
from deployments.router import Router
from deployments.ui.control_room import ControlRoom

__all__ = ["list_routes"]


def list_routes() -> list[tuple[str, str]]:
    """Method and path of every route that a Router has, without what Starlette adds to them."""
    router: Any = object.__new__(Router)
    router._access = Access(())
    router._overview = SimpleNamespace(state=None)
    router._insight = Insight(None, None, (), router._access)  # type: ignore[arg-type]
    router._stored = StoredResponses(None)  # type: ignore[arg-type]
    router._room = ControlRoom(access=lambda: router._access, overview=router._overview, chat=None)  # type: ignore[arg-type]
    routes = [route for route in router.__serve_build_asgi_app__().routes if isinstance(route, Route)]
    return [(method, route.path) for route in routes for method in (route.methods or set()) - {"HEAD"}]
