"""The plots of a report: which figures go into which picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deployments.evaluate.pages.svg_plot import Bar, draw_bars, draw_lines, draw_points

__all__ = ["draw_cascade", "draw_growth", "draw_layers", "draw_lengths", "draw_together"]


def draw_layers(report: Mapping[str, Any]) -> str:
    """Draw the share of right calls by model and layer."""
    bars: list[Bar] = []
    for row in report["calls"]:
        right = row["right"]
        if right["runs"]:
            name = "the chain" if row["layer"] == "+ escalation" else f"{row['model']} {row['layer']}"
            bars.append(
                (name, right["share"], right["low"], right["high"], f"{right['hits']} of {right['runs']} right")
            )
    return _frame("Right tool calls, with 95 % intervals", draw_bars("Right tool calls", bars)) if bars else ""


def draw_growth(report: Mapping[str, Any]) -> str:
    """Draw how the prompt grows as an agent works."""
    series = {
        name: [(step["step"], step["prompt_tokens"]) for step in steps] for name, steps in report["growth"].items()
    }
    words = "Prompt tokens by step of the agent"
    return _frame(words, draw_lines(words, series, across="step", up="prompt tokens (median)"))


def draw_lengths(report: Mapping[str, Any]) -> str:
    """Draw first-token times and tokens a second by prompt length."""
    first, pace = {}, {}
    for name, speed in report["speeds"].items():
        rows = [row for row in speed["lengths"] if row["prompt_tokens"]]
        first[name] = [(row["prompt_tokens"]["median"], row["first_s"]["median"]) for row in rows if row["first_s"]]
        pace[name] = [(row["prompt_tokens"]["median"], row["tokens_s"]["median"]) for row in rows if row["tokens_s"]]
    one = draw_lines("Time to the first token", first, across="prompt tokens", up="seconds (median)")
    two = draw_lines("Tokens a second", pace, across="prompt tokens", up="tokens/s (median)")
    return _frame("Time to the first token", one) + _frame("Tokens a second, once it writes", two)


def draw_together(report: Mapping[str, Any]) -> str:
    """Draw the tokens a second of all requests by how many there are at once."""
    series = {
        name: [(row["requests"], row["tokens_s"]) for row in speed["together"]]
        for name, speed in report["speeds"].items()
    }
    words = "Tokens a second of all requests together"
    return _frame(words, draw_lines(words, series, across="requests at once", up="tokens/s"))


def draw_cascade(cascade: Mapping[str, Any]) -> str:
    """Draw what each chain costs, and how often it is right."""
    names = {"": "other chains", "default": "as configured", "chosen": "proposed"}
    paid = any(one["usd"] for one in cascade["candidates"])
    series: dict[str, list[tuple[float, float]]] = {name: [] for name in names.values()}
    for one in cascade["candidates"]:
        series[names[one["role"]]].append((one["usd"] if paid else one["seconds"], 100 * one["right"]))
    across = "dollars a case" if paid else "seconds a case"
    words = "Price and share right of every chain, on the cases of the fit"
    return _frame(words, draw_points(words, series, across=across, up="right, %"))


def _frame(words: str, picture: str) -> str:
    return f"<figure>{picture}<figcaption>{words}</figcaption></figure>" if picture else ""
