"""`GET /openapi.json` and `GET /docs`: the description, and the page that shows it (Swagger UI), for whom the server
answers at all.

Swagger UI's files come from the package `fastapi-swagger`, of which nothing is imported. Invariants: only the files of
`ASSETS` are served; the page loads nothing from another host, and has no script of its own in it.
"""

from __future__ import annotations

import asyncio
import functools
import html
import importlib.util
from collections.abc import Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.access import Access
from deployments.api.openapi.openapi_document import write_document
from deployments.errors import ApiError

PACKAGE = "fastapi_swagger"
ASSETS = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
    "start.js": "text/javascript",
}
PAGE = """<!doctype html>
<html lang="en" data-description="{root}/openapi.json">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>MLX Stack Serve</title>
<link rel="icon" href="{root}/docs/favicon-32x32.png">
<link rel="stylesheet" href="{root}/docs/swagger-ui.css">
</head>
<body>
<div id="ui"></div>
<script src="{root}/docs/swagger-ui-bundle.js"></script>
<script src="{root}/docs/start.js"></script>
</body>
</html>
"""
START = b"""SwaggerUIBundle({
  url: document.documentElement.dataset.description,
  dom_id: "#ui",
  deepLinking: true,
  presets: [SwaggerUIBundle.presets.apis],
  validatorUrl: null,
});
"""
# Pictures in the style sheet are `data:`; the rest comes from this server. Swagger UI sets styles from its script.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
GUARDED = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


class DocsRoutes:
    """The routes. `access` is called at each request, since a `user_config` may change it."""

    def __init__(self, access: Callable[[], Access]) -> None:
        self._access = access

    def routes(self) -> list[Route]:
        """List them for the Router's app."""
        return [
            Route("/openapi.json", self.describe),
            Route("/docs", self.show),
            Route("/docs/{asset}", self.read_asset),
        ]

    async def describe(self, request: Request) -> Response:
        """Answer with the description."""
        self._guard(request)
        return Response(write_document(_find_root(request)), media_type="application/json", headers=GUARDED)

    async def show(self, request: Request) -> Response:
        """Answer with the page."""
        self._guard(request)
        page = PAGE.format(root=html.escape(_find_root(request)))
        return Response(page, media_type="text/html", headers=GUARDED | {"content-security-policy": POLICY})

    async def read_asset(self, request: Request) -> Response:
        """Answer with a file of the page."""
        self._guard(request)
        name = request.path_params["asset"]
        if name not in ASSETS:
            raise ApiError("not_found", f"there is no file {name[:100]!r} here")
        data = START if name == "start.js" else await asyncio.to_thread(_read_file, name)
        return Response(data, media_type=ASSETS[name], headers=GUARDED | {"cache-control": "max-age=3600"})

    def _guard(self, request: Request) -> None:
        self._access().guard(request.client.host if request.client else None, request.headers)


def _find_root(request: Request) -> str:
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")


@functools.cache
def _read_file(name: str) -> bytes:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise ApiError("not_found", f"the package {PACKAGE} isn't installed, which brings Swagger UI")
    return (Path(found.origin).parent / "resources" / name).read_bytes()
