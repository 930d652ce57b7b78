"""`/ui/evaluations`: the reports that `mlx-stack-serve evaluate` has kept on this machine, with their plots.

A report is a page of its own, made to be opened from a disk. It is sent with a sandbox policy: no script, no form, no
origin, whatever is in the file. JSON and Markdown are sent as they are.

What must never happen: a report that runs in the control room's own origin; a file that is no report.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.errors import ApiError
from deployments.evaluate.kept_reports import clear_unfinished, find_kept_folder, list_kept, read_kept
from deployments.ui.desk import Desk
from deployments.ui.rendering import GUARDED
from deployments.ui.visits import Visit

__all__ = ["EvaluationPages"]

# The style sheet stands in the file, which names its digest in a policy of its own; a browser holds it to both.
SANDBOXED = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox"
}
TYPES = {"report.html": "text/html", "report.md": "text/plain", "report.json": "application/json"}
NONE = "There is no report of this name: it is too old, or of another machine."


class EvaluationPages:
    """The list, and the files of a report. `folder` is asked for at each request: the first report makes it."""

    def __init__(self, desk: Desk, folder: Callable[[], Path] = find_kept_folder) -> None:
        self._desk = desk
        self._folder = folder
        with contextlib.suppress(RuntimeError):  # a user without a home has no reports either
            clear_unfinished(folder())

    def routes(self) -> list[Route]:
        """List them, below `/ui`."""
        return [
            Route("/evaluations", self._desk.look(self.show_list)),
            Route("/evaluations/{name}/{part}", self._desk.look(self.send)),
        ]

    async def show_list(self, request: Request, visit: Visit) -> Response:
        """List them, the newest first."""
        kept = await asyncio.to_thread(list_kept, self._folder())
        return self._desk.show(request, visit, "evaluations.html", kept=kept)

    async def send(self, request: Request, visit: Visit) -> Response:
        """Send one of its files."""
        name, part = request.path_params["name"], request.path_params["part"]
        data = await asyncio.to_thread(read_kept, self._folder(), name, part)
        if data is None:
            raise ApiError("not_found", NONE)
        return Response(data, media_type=TYPES[part], headers=GUARDED | SANDBOXED)
