"""Templates, files and headers: what every page of the control room has.

Templates stand in `templates/`, styles and scripts in `static/`, with htmx and uPlot as their makers published them and
their licences beside them: nothing is built, and no byte comes from elsewhere. A file's address has the digest of all
files in it, so a browser may keep it for good.

What must never happen: a script or a style in a page (the policy lets none in), a text that isn't escaped.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import Response

from deployments import __version__
from deployments.ui.shown import FILTERS

__all__ = ["ASSETS", "GUARDED", "POLICY", "find_digest", "read_asset", "render", "respond"]

HERE = Path(__file__).parent
ASSETS = {
    "room.css": "text/css",
    "room.js": "text/javascript",
    "try.js": "text/javascript",
    "charts.js": "text/javascript",
    "htmx.js": "text/javascript",
    "uplot.js": "text/javascript",
    "uplot.css": "text/css",
    "mark.svg": "image/svg+xml",
    "htmx.LICENSE.txt": "text/plain",
    "uplot.LICENSE.txt": "text/plain",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
GUARDED = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with `no-referrer` a form's Origin would be `null`
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
FOREVER = GUARDED | {"cache-control": "public, max-age=31536000, immutable"}


@functools.cache
def _build_environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(FILTERS)
    made.globals["version"] = __version__
    return made


def render(template: str, **values: Any) -> str:
    """Render a template."""
    return _build_environment().get_template(template).render(**values)


def respond(page: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with a page, under the policy."""
    return Response(page, status_code=status, media_type="text/html", headers={**GUARDED, **(headers or {})})


@functools.cache
def find_digest() -> str:
    """Return the digest of all files: another one with each change of any of them."""
    files = [(HERE / "static" / name).read_bytes() for name in sorted(ASSETS)]
    return hashlib.sha256(b"\0".join(files)).hexdigest()[:12]


@functools.cache
def read_asset(name: str) -> Response:
    """Read a file of the pages; KeyError where there is none of this name."""
    return Response((HERE / "static" / name).read_bytes(), media_type=ASSETS[name], headers=FOREVER)
