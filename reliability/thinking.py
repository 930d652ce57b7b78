"""How a model's thought came to its end, and how long it was.

A thought that has used its budget is closed and answered from, and so is one that circles: the rules that find
repetition in an answer find it in a thought. Without a budget it leaves room for the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ThoughtEnd(StrEnum):
    """What ended a thought."""

    MODEL = "model"
    BUDGET = "budget"
    CIRCLING = "circling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """The thought of one attempt: its tokens, and what ended it; None where the answer ended within it."""

    tokens: int
    ended: ThoughtEnd | None = None


def leave_room(tokens_max: int) -> int:
    """Return how many of an answer's tokens its thought leaves for what comes behind it: a quarter, 1,024 at most."""
    return min(1_024, tokens_max // 4)


def least(*limits: int | None) -> int | None:
    """Return the least of these limits; None where there is none."""
    given = [limit for limit in limits if limit is not None]
    return min(given, default=None)
