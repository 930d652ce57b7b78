"""How much repetition in the arguments of a call is a runaway, and whether a text stands in such arguments.

What stands in arguments is a file as often as not: a matrix of zeros, a blank picture in base64, a rule of dashes. All
of that is honest, and stopping it makes the task impossible. So the limits are those above which hardly anything
honest is known, the same for native calls and for calls in the text:

    what repeats                                 repetitions          characters
    words: a line of code or of prose, which     WORDS_REPETITIONS    WORDS_SPAN, or
    has three different words beside its tags    LONG_REPETITIONS     LONG_SPAN
    brackets that are opened and not closed      OPENED_REPETITIONS   any
    data: anything else                          any                  DATA_SPAN

A call in the text begins and ends by the table of call formats; a line that begins with JSON is taken for one. A wrong
guess costs characters, never a verdict.
"""

from __future__ import annotations

import re
from collections import Counter

from reliability.loops.cycles.long_cycles import LongTail
from reliability.tools.format_row import Reader
from reliability.tools.formats import CALL_FORMATS

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


HEAD_CHARS = 80  # of a line, by which it is told what it is
_DELIMITER_CHARS = 64  # no delimiter of the table is longer
_TAGGED = [row for row in CALL_FORMATS if row.reader in (Reader.ENVELOPE, Reader.ELEMENTS, Reader.MESSAGES)]
_OPENERS = [opener for row in _TAGGED for opener in row.compared or row.opens]
_CLOSERS = [closer for row in _TAGGED for closer in row.closes]
_DELIMITER = re.compile(f"(?P<opens>{'|'.join(_OPENERS)})|{'|'.join(_CLOSERS)}", re.IGNORECASE)
_HEAD = re.compile(r"""[ \t>]*(?:Action(?: Input)?:[ \t]*)?(?:[\[{]|"[\w -]{1,60}"\s*:)""", re.IGNORECASE)


def update_place(inside: bool, tail: str, new: int) -> bool:
    """Return whether the text that ends in `tail` is inside of a call; the last `new` characters weren't seen yet."""
    text = tail[-new - _DELIMITER_CHARS :]
    if "<" not in text and "TOOL" not in text.upper():
        return inside  # there is no delimiter without one of them
    begin = len(text) - new
    for delimiter in _DELIMITER.finditer(text):
        if delimiter.end() >= begin:  # one may be known by what follows it
            inside = delimiter["opens"] is not None
    return inside


def begins_call(head: str) -> bool:
    """Return whether a line that begins so may be a call, or a piece of one."""
    return _HEAD.match(head) is not None
