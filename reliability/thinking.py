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


ANSWER_TOKENS = 1_024


def leave_room(budget: int | None, tokens_max: int) -> tuple[int, bool]:
    """Return with how many tokens an answer of at most `tokens_max` may think, and whether that is the `budget` which
    its client has named. Without one that ends before the answer does, a quarter of the tokens, 1,024 at most, is left
    for what comes behind the thought."""
    if budget is not None and budget < tokens_max:
        return budget, True
    return tokens_max - min(ANSWER_TOKENS, tokens_max // 4), False


def least(*limits: int | None) -> int | None:
    """Return the least of these limits; None where there is none."""
    given = [limit for limit in limits if limit is not None]
    return min(given, default=None)
