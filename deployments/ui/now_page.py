"""`/` and `/ui/events`: the server at this moment, and what becomes of it while the page is open."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.exchange import EventStream
from deployments.ui.desk import Desk
from deployments.ui.live import Live, render_pieces
from deployments.ui.rendering import GUARDED
from deployments.ui.visits import Visit, find_root

__all__ = ["NowPage"]

# A proxy that collects an answer before it passes it on would make a still of it.
UNBUFFERED = {"x-accel-buffering": "no"}


class NowPage:
    """The page and its stream."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._live = Live(desk.overview)

    def routes(self) -> list[Route]:
        """List them, below `/ui`."""
        return [Route("/events", self._desk.look(self.stream))]

    async def show(self, request: Request, visit: Visit) -> Response:
        """Show the page as it is now; it goes on by itself."""
        overview = self._desk.overview
        pieces = render_pieces(await overview.take(), await overview.take_day(), find_root(request))
        return self._desk.show(request, visit, "now.html", pieces=pieces)

    async def stream(self, request: Request, _: Visit) -> Response:
        """Send what changes."""
        frames = self._live.watch(find_root(request), lambda: self._desk.visits.may_look(request))
        return EventStream(frames, GUARDED | UNBUFFERED)
