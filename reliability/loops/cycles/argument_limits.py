"""How much repetition in the arguments of a call is a runaway.

Arguments are JSON, and what stands in their strings is a file as often as not: a matrix of zeros, a board of a hundred
equal cells, a blank picture in base64, a rule of three thousand dashes. All of that is honest, and whoever stops it
makes the task impossible, since the next attempt writes the same. A runaway that is found late costs tokens, and the
cap on them ends it. So the limits are those above which hardly anything honest is known:

    what repeats                                 repetitions          characters
    words: a line of code or of prose, which     WORDS_REPETITIONS    WORDS_SPAN, or
    has three different words beside its tags    LONG_REPETITIONS     LONG_SPAN
    brackets that are opened and not closed      OPENED_REPETITIONS   any
    data: anything else                          any                  DATA_SPAN

A line that a model once wrote 42 times into one edit is above the first; a thousand lines of twenty zeros, half the
last. They are the same for native calls and for calls in the text.
"""

from __future__ import annotations

import re
from collections import Counter

from reliability.loops.cycles.long_cycles import LongTail

__all__ = ["is_runaway_argument"]

WORDS_REPETITIONS, WORDS_SPAN = 32, 1_200
LONG_REPETITIONS, LONG_SPAN = 12, 6_000
OPENED_REPETITIONS = 512
DATA_SPAN = 40_000
WORDS_MIN = 3

_TAG = re.compile(r"<[^<>]{1,400}>")
_WORD = re.compile(r"[^\W\d_]{2,}")


def is_runaway_argument(tail: LongTail) -> bool:
    """Return whether the streak at the end of a call's arguments has gone on for too long."""
    count, span = tail.repetitions, tail.span
    if span >= DATA_SPAN or (count >= OPENED_REPETITIONS and _opens(tail.unit)):
        return True
    many = (count >= WORDS_REPETITIONS and span >= WORDS_SPAN) or (count >= LONG_REPETITIONS and span >= LONG_SPAN)
    return many and _has_words(tail.unit)


def _opens(unit: str) -> bool:
    """Return whether each copy is nested in the one before."""
    return unit.count("{") + unit.count("[") > unit.count("}") + unit.count("]")


def _has_words(unit: str) -> bool:
    """Return whether the unit says something. It may begin in the middle of a word or of a tag, so it is read three
    times in a row, and what stands there only once is such a piece."""
    words = Counter(_WORD.findall(_TAG.sub(" ", unit * 3)))
    return sum(count > 1 for count in words.values()) >= WORDS_MIN
