"""The plots of a report as SVG: bars with intervals, lines, points; without scripts or styles of their own.

No color carries a meaning alone: each series has its name, each bar its figure, each plot a title.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 120, 14, 40
WIDE, TALL = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
BAR, GAP, LABEL = 18, 8, 190
_SERIES = 6
TICKS = 5

# Name, share, low, high, label.
_Bar = tuple[str, float, float, float, str]
_Series = Mapping[str, Sequence[tuple[float, float]]]


def draw_plots(report: Mapping[str, Any]) -> dict[str, str]:
    """Draw each plot of the page, by the name of its chapter; one without figures is empty."""
    return {
        "layers": _draw_layers(report),
        "lengths": _draw_lengths(report),
        "together": _draw_together(report),
        "confidence": draw_confidence(report["confidence"]),
        "cascade": _draw_cascade(report["cascade"]),
    }


def _draw_layers(report: Mapping[str, Any]) -> str:
    bars: list[_Bar] = []
    for row in report["calls"]:
        right = row["right"]
        if right["runs"]:
            name = "the chain" if row["layer"] == "+ escalation" else f"{row['model']} {row['layer']}"
            words = f"{right['hits']} of {right['runs']} right"
            bars.append((name, right["share"], right["low"], right["high"], words))
    return _draw_bars("Right tool calls, with 95 % intervals", bars) if bars else ""


def _draw_lengths(report: Mapping[str, Any]) -> str:
    first, pace = {}, {}
    for name, speed in report["speeds"].items():
        rows = [row for row in speed["lengths"] if row["prompt_tokens"]]
        first[name] = [(row["prompt_tokens"]["median"], row["first_s"]["median"]) for row in rows if row["first_s"]]
        pace[name] = [(row["prompt_tokens"]["median"], row["tokens_s"]["median"]) for row in rows if row["tokens_s"]]
    one = _draw_chart("Time to the first token", first, across="prompt tokens", up="seconds (median)")
    two = _draw_chart("Tokens a second, once it writes", pace, across="prompt tokens", up="tokens/s (median)")
    return one + two


def _draw_together(report: Mapping[str, Any]) -> str:
    speeds = report["speeds"].items()
    series = {name: [(row["requests"], row["tokens_s"]) for row in speed["together"]] for name, speed in speeds}
    return _draw_chart("Tokens a second of all requests together", series, across="requests at once", up="tokens/s")


def draw_confidence(confidence: Mapping[str, Any]) -> str:
    """Draw how often calls were right by how likely they were thought to be: good estimates are on the diagonal."""
    series = {"as told": [(0.0, 0.0), (100.0, 100.0)]}
    for name, one in confidence.items():
        if one["source"] is not None:
            series[name] = [(100 * each["likely"], 100 * each["right"]) for each in one["bins"]]
    words = "Calls that were right, by how likely they were thought to be, on cases that no fit has seen"
    return _draw_chart(words, series, across="thought to be right, %", up="right, %") if len(series) > 1 else ""


def _draw_cascade(cascade: Mapping[str, Any]) -> str:
    names = {"": "other chains", "default": "as configured", "chosen": "proposed"}
    candidates = cascade.get("candidates", ())
    paid = any(one["usd"] for one in candidates)
    series: dict[str, list[tuple[float, float]]] = {name: [] for name in names.values()}
    for one in candidates:
        series[names[one["role"]]].append((one["usd"] if paid else one["seconds"], 100 * one["right"]))
    across = "dollars a case" if paid else "seconds a case"
    words = "Price and share right of every chain, on the cases of the fit"
    return _draw_chart(words, series, across=across, up="right, %", joined=False)


def _draw_bars(title: str, bars: Sequence[_Bar]) -> str:
    height = len(bars) * (BAR + GAP) + 26
    scale = WIDTH - LABEL - 150
    parts = []
    for number, (name, share, low, high, words) in enumerate(bars):
        y = number * (BAR + GAP) + 4
        middle = y + BAR / 2
        parts += [
            _text(LABEL - 8, middle + 4, name, "end"),
            f'<rect class="track" x="{LABEL}" y="{y}" width="{scale}" height="{BAR}"/>',
            f'<rect class="bar" x="{LABEL}" y="{y}" width="{share * scale:.1f}" height="{BAR}"/>',
            f'<path class="whisker" d="M{LABEL + low * scale:.1f} {middle}H{LABEL + high * scale:.1f}"/>',
            _text(LABEL + scale + 8, middle + 4, words),
        ]
    for percent in (0, 25, 50, 75, 100):
        parts.append(_text(LABEL + percent / 100 * scale, height - 6, f"{percent} %", "middle", "tick"))
    return _frame(title, height, parts)


def _draw_chart(title: str, series: _Series, *, across: str, up: str, joined: bool = True) -> str:
    """Draw a line for each series, or only its points; both axes begin at 0."""
    points = [point for line in series.values() for point in line]
    if not points:
        return ""
    top_x, step_x = _find_scale(max(x for x, _ in points))
    top_y, step_y = _find_scale(max(y for _, y in points))

    parts = _draw_axes(top_x, step_x, top_y, step_y, across, up)
    taken: list[float] = []
    for number, (name, line) in enumerate(series.items()):
        ordered = sorted(line)
        placed = [(LEFT + x / top_x * WIDE, HEIGHT - BOTTOM - y / top_y * TALL) for x, y in ordered]
        kind = f"s{number % _SERIES}"
        if joined and len(placed) > 1:
            way = "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
            parts.append(f'<path class="line {kind}" d="M{way}"/>')
        parts += [
            f'<circle class="dot {kind}" cx="{x:.1f}" cy="{y:.1f}" r="{3 if joined else 4}">'
            f"<title>{escape(name)}: {at[0]:g}, {at[1]:.3g}</title></circle>"
            for at, (x, y) in zip(ordered, placed, strict=True)
        ]
        if placed:
            y = _find_room(placed[-1][1] if joined else TOP + 14 + 18 * number, taken)
            parts.append(f'<circle class="dot {kind}" cx="{WIDTH - RIGHT + 10}" cy="{y - 4:.1f}" r="4"/>')
            parts.append(_text(WIDTH - RIGHT + 18, y, name))
    return _frame(title, HEIGHT, parts)


def _draw_axes(top_x: float, step_x: float, top_y: float, step_y: float, across: str, up: str) -> list[str]:
    foot = HEIGHT - BOTTOM
    parts = [_text(LEFT + WIDE / 2, HEIGHT - 6, across, "middle", "tick"), _text(4, TOP - 12, up, "start", "tick")]
    for number in range(round(top_y / step_y) + 1):
        y = foot - number * step_y / top_y * TALL
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{LEFT + WIDE}"/>')
        parts.append(_text(LEFT - 6, y + 4, f"{number * step_y:g}", "end", "tick"))
    for number in range(round(top_x / step_x) + 1):
        x = LEFT + number * step_x / top_x * WIDE
        parts.append(_text(x, foot + 15, f"{number * step_x:g}", "middle", "tick"))
    return parts


def _find_scale(most: float) -> tuple[float, float]:
    """Find where an axis ends, and its steps: 1, 2 or 5 times a power of ten."""
    if most < sys.float_info.min * TICKS:
        return 1.0, 0.5
    rough = most / TICKS
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return math.ceil(most / step * 0.999) * step, step


def _find_room(y: float, taken: list[float]) -> float:
    """Find a place for a name near y where no other one stands."""
    y = max(TOP + 12.0, y + 4)
    while any(abs(y - other) < 16 for other in taken):
        y += 16
    taken.append(y)
    return y


def _text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    shown = f' class="{kind}"' if kind else ""
    return f'<text{shown} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _frame(title: str, height: float, parts: Sequence[str]) -> str:
    title = escape(title)
    return (
        f'<figure><svg viewBox="0 -10 {WIDTH} {height + 10:.0f}" role="img" aria-label="{title}">'
        f"<title>{title}</title>{''.join(parts)}</svg><figcaption>{title}</figcaption></figure>"
    )
