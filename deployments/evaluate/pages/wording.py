"""How the figures of a report are written, on the page and in Markdown alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["write_bytes", "write_figure", "write_share", "write_spread"]

NOTHING = "–"


def write_share(share: Mapping[str, Any] | None) -> str:
    """Write a share with its count and its interval."""
    if not share or not share["runs"]:
        return NOTHING
    return (
        f"{share['share']:.0%} ({share['hits']} of {share['runs']}; {round(share['low'] * 100)} to {share['high']:.0%})"
    )


def write_figure(value: float | None, unit: str = "") -> str:
    """Write a figure with three digits that count."""
    if value is None:
        return NOTHING
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}".strip()


def write_spread(spread: Mapping[str, Any] | None, unit: str = "") -> str:
    """Write a median with its smallest and largest."""
    if not spread:
        return NOTHING
    median = write_figure(spread["median"], unit)
    if spread["runs"] == 1:
        return f"{median} (one run)"
    return f"{median} ({write_figure(spread['min'])} to {write_figure(spread['max'])})"


def write_bytes(size_bytes: int | None) -> str:
    """Write a size."""
    return NOTHING if size_bytes is None else f"{size_bytes / 1e9:.2f} GB"
