"""The nudge: what the model is told when it goes round in circles.

Deterministic: the same loop gives the same words. They begin with the key of the streak, which its incident tells as
well, name the tool, say how often, and quote the result, since "you are looping" alone is ignored by weak models.
"""

from __future__ import annotations

from reliability.loops.content import NOTICE
from reliability.loops.findings import Kind, Loop

__all__ = ["nudge"]


def nudge(loop: Loop) -> str:
    """The message to put before the model."""
    return f"{NOTICE} {loop.key}] {_what(loop)}{_quote(loop)} {_advice(loop)}"


def _what(loop: Loop) -> str:
    if loop.kind is Kind.ERRORS:
        return f"`{loop.tool}` has failed with the same error {loop.laps} times, whatever the arguments."
    if loop.kind is Kind.TEXTS:
        return f"You have given the same answer {loop.laps} times without calling a tool."
    if loop.period > 1:
        return f"You repeat the same {loop.period} steps ({loop.tool}): round {loop.laps}, the same results."
    time = _nth(loop.laps)
    return f"You call `{loop.tool}` with the same arguments for the {time} time; the result did not change."


def _nth(number: int) -> str:
    tens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if tens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _quote(loop: Loop) -> str:
    if not loop.evidence:
        return ""
    label = {Kind.ERRORS: "The error", Kind.TEXTS: "The answer"}.get(loop.kind, "The last result")
    return f" {label}: {loop.evidence}"


def _advice(loop: Loop) -> str:
    if loop.kind is Kind.TEXTS:
        return "Do not say it again: take the next step, or say plainly what stops you."
    return (
        "Do not repeat this call. Use what you already know, try a different tool or other arguments, "
        "or answer the user and say what is missing."
    )
