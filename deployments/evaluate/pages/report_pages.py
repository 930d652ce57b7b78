"""Render a report as one HTML file and as Markdown, from two templates.

The page needs no network. Its content security policy names its style sheet by digest, and a model's text is escaped.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from deployments.evaluate.pages.plots import draw_plots
from deployments.evaluate.tasks.fixtures import FIXTURES

HERE = Path(__file__).parent
NOTHING = "–"
_Differences = Sequence[Mapping[str, Any]]


def render_page(report: Mapping[str, Any], differences: _Differences | None = None) -> str:
    """Render the HTML page; `differences` to an older report come first."""
    style = (HERE / "page.css").read_text(encoding="utf-8")
    known = {name.partition("#")[0] for row in report["tasks"] for name in row["fixtures"]}
    values = {
        "plots": draw_plots(report),
        "fixtures": [name for name in FIXTURES if name in known] + sorted(known - set(FIXTURES)),
        "style": style,
        "digest": base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
    }
    template = _build_environment().get_template("report.html")
    return template.render(report=report, differences=differences, **values)


def render_summary(report: Mapping[str, Any], differences: _Differences | None = None) -> str:
    """Render the Markdown summary: the verdicts and the headline tables, for a README or a pull request."""
    return _build_environment().get_template("report.md.jinja").render(report=report, differences=differences)


def _write_share(share: Mapping[str, Any] | None) -> str:
    if not share or not share["runs"]:
        return NOTHING
    between = f"{round(share['low'] * 100)} to {share['high']:.0%}"
    return f"{share['share']:.0%} ({share['hits']} of {share['runs']}; {between})"


def _write_figure(value: float | None, unit: str = "") -> str:
    """Write a figure with three significant digits."""
    if value is None:
        return NOTHING
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}".strip()


def _write_spread(spread: Mapping[str, Any] | None, unit: str = "") -> str:
    if not spread:
        return NOTHING
    median = _write_figure(spread["median"], unit)
    if spread["runs"] == 1:
        return f"{median} (one run)"
    return f"{median} ({_write_figure(spread['min'])} to {_write_figure(spread['max'])})"


def _write_bytes(size_bytes: int | None) -> str:
    return NOTHING if size_bytes is None else f"{size_bytes / 1e9:.2f} GB"


def _write_machine(machine: Mapping[str, Any]) -> str:
    size = _write_bytes(machine.get("memory_bytes"))
    parts = [machine.get("processor"), f"{machine.get('cores')} cores", size, machine.get("system")]
    return ", ".join(str(part) for part in parts if part)


def _list_passed(fixtures: Mapping[str, Any]) -> str:
    return ", ".join(name for name, one in fixtures.items() if one["passed"]) or "none"


def _quote(words: str) -> str:
    """Return words of others as text of one line in one cell of a Markdown table, without HTML."""
    return escape(" ".join(words.split()), quote=False).replace("|", "/")


@functools.cache
def _build_environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=lambda name: name == "report.html",
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"share": _write_share, "figure": _write_figure, "spread": _write_spread, "bytes": _write_bytes}
    made.filters |= {"machine": _write_machine, "passed": _list_passed, "quote": _quote}
    return made
