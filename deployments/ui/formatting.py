"""How the pages write figures: short, with a unit, and never more exact than they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from deployments.reports.report import write_prefill

_NOTHING = "–"
_ID_CHARS_MAX = 19
_WORDS = {"client_left": "client left", "cut": "cut"}


def write_ms(value: float | None) -> str:
    """Write a duration that is given in milliseconds."""
    if value is None:
        return _NOTHING
    if value < 1000:
        return f"{value:.0f} ms"
    if value < 60_000:
        return f"{value / 1000:.1f} s"
    minutes, seconds = divmod(int(value / 1000), 60)
    return f"{minutes} min {seconds:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def write_count(value: float | None) -> str:
    """Write a number of things."""
    if value is None:
        return _NOTHING
    if abs(value) < 10_000:
        return f"{value:,.0f}"
    for limit, unit in ((1e6, "k"), (1e9, "M")):
        if abs(value) < limit:
            return f"{value / (limit / 1000):.1f} {unit}"
    return f"{value / 1e9:.1f} G"


def write_usd(value: float | None) -> str:
    """Write an amount in US dollars."""
    if value is None:
        return _NOTHING
    if value >= 100_000:
        return f"${write_count(value)}"
    return f"${value:.2f}" if value >= 0.1 or value == 0 else f"${value:.4f}"


def write_bytes(value: float | None) -> str:
    """Write a size in memory."""
    if value is None:
        return _NOTHING
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


def write_share(value: float | None) -> str:
    """Write a share of one."""
    return _NOTHING if value is None else f"{value * 100:.0f} %"


def _write_time(at_s: float | None) -> str:
    """Write a moment as ISO 8601 in UTC: the page's script shows it in the reader's own zone."""
    return "" if at_s is None else f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"


def write_word(value: Any) -> str:
    """Write a value of an enum as a person would."""
    text = _NOTHING if value in (None, "") else str(value)
    return _WORDS.get(text, text.replace("_", " "))


def _shorten_id(request_id: str) -> str:
    return request_id if len(request_id) <= _ID_CHARS_MAX else f"{request_id[: _ID_CHARS_MAX - 1]}…"


def list_way(report: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """List the tiers that a request went by, each with whether its last answer there was good."""
    way: list[tuple[str, bool]] = []
    for attempt in report["attempts"]:
        if way and way[-1][0] == attempt["tier"]:
            way.pop()
        way.append((attempt["tier"], not (attempt["fault"] or attempt["flaw"])))
    return way


def _name_model(tier: Mapping[str, Any]) -> str:
    """Name a tier's model; for `auto` it is the name in the source that was chosen."""
    model, source = tier["model"], tier["source"]
    if model not in (None, "auto") or not source:
        return str(model or tier["kind"] or "")
    place, _, file = source.partition("?")[0].partition("#")
    name: str = (file or place.partition("@")[0]).rpartition("/")[2]
    return name.removesuffix(".gguf")


FILTERS: Mapping[str, Callable[..., Any]] = {
    "short": _shorten_id,
    "way": list_way,
    "ms": write_ms,
    "count": write_count,
    "usd": write_usd,
    "bytes": write_bytes,
    "share": write_share,
    "iso": _write_time,
    "prefill": write_prefill,
    "word": write_word,
    # A name as one part of an address: of its slashes none is one there, so a browser resolves no `..` in it.
    "segment": partial(quote, safe=""),
    "model": _name_model,
}
