"""Cycles of up to `PERIOD_MAX` characters, found in strides.

`extend` keeps the end of a text and the streak that it ends in: an exact cycle that goes on costs one comparison, and
its copies are counted without their text. `find_varied` finds copies in prose that differ in a counter or a few words,
from a probe without digits. Tables, tests, logs and code differ in numbers by nature and are left alone, and so is what
counts down or up to an end.

Invariants: the same places are looked at however the text was cut; `tail_chars` of text, `_TRIES` places of a probe.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import NamedTuple

from rapidfuzz import fuzz
from rapidfuzz.distance import Postfix

from reliability.tools.format_row import Reader
from reliability.tools.formats import CALL_FORMATS

STRIDE = 512
PERIOD_MAX = 4_000
_PROBE, _TRIES = 48, 12

_VARIED_REPETITIONS, _VARIED_SPAN, _VARIED_LIKENESS = 7, 3_000, 90
_WORDED_REPETITIONS = 10  # where words differ: a file of licences has the same one for seven names
VARIED_TAIL_CHARS = _WORDED_REPETITIONS * PERIOD_MAX + 2 * STRIDE
_VARIED_PROBE, _VARIED_TRIES = 24, 4
# Where the probes end, by turns, counted from the end of the text: a copy whose length divides the stride's is not
# always probed at the same place.
_VARIED_BACK = (0, 97, 211)
_STRETCH = 0.15  # how much longer or shorter the next copy may be
_PROSE_CHARS, _PROSE_LETTERS, _PROSE_SIGNS, _PROSE_DIGITS = 1_000, 0.8, 0.06, 0.06

_COUNTED_REPETITIONS, _COUNTED_DIGITS = 80, 0.25

_WORDS = re.compile(r"[^\d\n]{10,}")
_DIGITS = re.compile(r"\d+")
_NUMBER = re.compile(r"\d{1,9}")
_SIGNS = re.compile(r"[(){}\[\]<>=_/\\|@#$%^&*+~`;\"]")
_SHARE = re.compile(r"\b(\d{1,9})\s?(?:/|of|out of|von|de|sur|из)\s?(\d{1,9})\b")
_WORDS_REPETITIONS, _WORDS_SPAN = 32, 1_200
_LONG_REPETITIONS, _LONG_SPAN = 12, 6_000
_OPENED_REPETITIONS = 512
DATA_SPAN = 40_000
_WORDS_MIN = 3
_TAG = re.compile(r"<[^<>]{1,400}>")
_WORD = re.compile(r"[^\W\d_]{2,}")
HEAD_CHARS = 80  # of a line, by which it is told what it is
_DELIMITER_CHARS = 64  # no delimiter of the table is longer
_TAGGED = [row for row in CALL_FORMATS if row.reader in (Reader.ENVELOPE, Reader.ELEMENTS, Reader.MESSAGES)]
_OPENERS = [opener for row in _TAGGED for opener in row.compared or row.opens]
_CLOSERS = [closer for row in _TAGGED for closer in row.closes]
_DELIMITER = re.compile(f"(?P<opens>{'|'.join(_OPENERS)})|{'|'.join(_CLOSERS)}", re.IGNORECASE)
_HEAD = re.compile(r"""[ \t>]*(?:Action(?: Input)?:[ \t]*)?(?:[\[{]|"[\w -]{1,60}"\s*:)""", re.IGNORECASE)


class LongTail(NamedTuple):
    """The end of a text of `length` characters, and the streak that it ends in: from `start` on everything stood
    `period` characters before, but the first copy. A period of 0: there is none."""

    text: str = ""
    length: int = 0
    period: int = 0
    start: int = 0

    @property
    def span(self) -> int:
        """How long the streak is, its first copy included."""
        return self.length - self.start if self.period else 0

    @property
    def repetitions(self) -> int:
        """How many complete copies the streak has."""
        return self.span // self.period if self.period else 0

    @property
    def unit(self) -> str:
        """The newest copy."""
        return self.text[-self.period :] if self.period else ""


class _Varied(NamedTuple):
    """Copies that differ a little. `keep`: where the second of them ends that still stand in the tail."""

    repetitions: int
    period: int
    unit: str
    keep: int


def extend(tail: LongTail, chunk: str, tail_chars: int) -> LongTail:
    """Add the next stride; keep `tail_chars` characters, at least two periods and two strides."""
    text = (tail.text + chunk)[-tail_chars:]
    length, period = tail.length + len(chunk), tail.period
    if period and text[-len(chunk) :] == text[-len(chunk) - period : -period]:
        return LongTail(text, length, period, tail.start)
    period, span = _find_streak(text)
    return LongTail(text, length, period, length - span - period if period else 0)


def _find_streak(text: str) -> tuple[int, int]:
    """Return the period of the longest cycle that the text ends in, and how many characters repeat; (0, 0): none."""
    if len(text) < 2 * _PROBE:
        return 0, 0
    probe, lowest, end = text[-_PROBE:], max(0, len(text) - PERIOD_MAX - _PROBE), len(text) - 1
    best = (0, 0)
    for _ in range(_TRIES):
        at = text.rfind(probe, lowest, end)
        if at < 0:
            break
        period = len(text) - _PROBE - at
        span = count_repeated(text, period)
        if span >= period:
            best = max(best, (period, span), key=lambda found: found[1])
            end = min(at + _PROBE - 1, len(text) - span - period + _PROBE)
        else:
            end = at + _PROBE - 1
    return best


def count_repeated(text: str, period: int) -> int:
    """Count how many characters at the end stood a period before, too."""
    return Postfix.similarity(text, text[:-period])


def find_varied(tail: LongTail, plain: int) -> _Varied | None:
    """Find copies in prose that differ in a counter, or in a few words, among the last `plain` characters."""
    if tail.repetitions >= _VARIED_REPETITIONS:
        return None  # that is what the streak is for
    text, back = tail.text[-plain:], _VARIED_BACK[tail.length // STRIDE % len(_VARIED_BACK)]
    if min(len(text), plain) - back < _VARIED_SPAN:
        return None
    at, probe = _choose_probe(text, len(text) - back)
    places = _find_places(text, probe, at) if probe else []
    copies = [text[start:end] for end, start in itertools.pairwise(places)]
    if not copies or _comes_to_an_end(copies):
        return None
    unit = copies[0]
    if not (_is_prose(unit[:_PROSE_CHARS], _PROSE_DIGITS) or _only_counts(copies)):
        return None
    count, begin = len(places) - 1, tail.length - len(text)
    return _Varied(count, (at - places[-1]) // count, unit, begin + places[-3])


def _choose_probe(text: str, end: int) -> tuple[int, str]:
    """Choose words without a digit shortly before `end`: (where they stand, what they are), "" where there are none."""
    begin = max(0, end - 2 * _VARIED_PROBE)
    best = max(_WORDS.finditer(text, begin, end), key=lambda found: len(found[0]), default=None)
    if best is None or 2 * sum(map(str.isalpha, best[0])) < len(best[0]):
        return end, ""
    at = max(best.start(), best.end() - _VARIED_PROBE)
    return at, text[at : best.end()]


def _find_places(text: str, probe: str, at: int) -> list[int]:
    """Find where enough copies begin, the newest first; none where there are too few."""
    first = at
    for _ in range(_VARIED_TRIES):
        first = text.rfind(probe, max(0, at - PERIOD_MAX), first + len(probe) - 1)
        if first < 0:
            return []
        places, enough = _follow_back(text, probe, at, first)
        if len(places) > 2:  # these are the copies, be they too few
            return places if enough else []
    return []


def _follow_back(text: str, probe: str, at: int, first: int) -> tuple[list[int], bool]:
    """Follow the copies back from two places of the probe; return where they begin, and whether they are enough."""
    places, needed, varied = [at, first], _VARIED_REPETITIONS, False
    while len(places) <= needed or places[0] - places[-1] < _VARIED_SPAN:
        newer, older = places[-2:]
        slack = int((newer - older) * _STRETCH)
        lowest, highest = 2 * older - newer - slack, 2 * older - newer + slack
        oldest = text.rfind(probe, max(0, lowest), max(0, highest + len(probe)))
        difference = _compare(text[oldest:older], text[older:newer]) if 0 <= oldest < older else None
        if difference is None:
            return places, False
        varied, needed = varied or difference > 0, max(needed, difference)
        places.append(oldest)
    return places, varied  # copies that are equal are a streak, or were one


def _compare(older: str, newer: str) -> int | None:
    """Return how many copies it takes that differ no more than these two; None where they aren't alike."""
    if older == newer:
        return 0
    a, b = _DIGITS.sub("0", older), _DIGITS.sub("0", newer)
    if a == b:
        return _VARIED_REPETITIONS
    return _WORDED_REPETITIONS if fuzz.ratio(a, b, score_cutoff=_VARIED_LIKENESS) > 0 else None


def _is_prose(copy: str, digits_share: float) -> bool:
    """Return whether these are words: nearly all letters, few signs and few digits."""
    marks = len(copy) - sum(map(str.isspace, copy))
    letters, digits, signs = sum(map(str.isalpha, copy)), sum(map(str.isdigit, copy)), len(_SIGNS.findall(copy))
    share = _PROSE_LETTERS * (1 - digits_share)
    return letters >= share * marks and signs <= _PROSE_SIGNS * marks and digits <= digits_share * marks


def _only_counts(copies: list[str]) -> bool:
    """Return whether so many short copies, the newest first, say nothing but the next number each."""
    if len(copies) < _COUNTED_REPETITIONS:
        return False
    numbers = [_NUMBER.findall(copy) for copy in copies]
    if any(len(found) != 1 for found in numbers) or not _is_prose(copies[0], _COUNTED_DIGITS):
        return False
    return all(int(newer[0]) == int(older[0]) + 1 for newer, older in itertools.pairwise(numbers))


def _comes_to_an_end(copies: list[str]) -> bool:
    """Return whether a number in the copies goes down, or counts up to another one that stands beside it."""
    rows = [[int(found) for found in _NUMBER.findall(copy)] for copy in copies]
    columns = zip(*rows, strict=False)
    if any(all(newer < older for newer, older in itertools.pairwise(column)) for column in columns):
        return True
    for newest, before in zip(*map(_SHARE.findall, copies[:2]), strict=False):
        if newest[0] != before[0] and newest[1] == before[1] and int(newest[0]) <= int(newest[1]):
            return True
    return False


def is_runaway_argument(tail: LongTail) -> bool:
    """Return whether the streak at the end of a call's arguments has gone on for too long."""
    count, span = tail.repetitions, tail.span
    opened = sum(map(tail.unit.count, "{[")) > sum(map(tail.unit.count, "}]"))
    if span >= DATA_SPAN or (opened and count >= _OPENED_REPETITIONS):
        return True
    many = (count >= _WORDS_REPETITIONS and span >= _WORDS_SPAN) or (count >= _LONG_REPETITIONS and span >= _LONG_SPAN)
    return many and _has_words(tail.unit)


def _has_words(unit: str) -> bool:
    """Return whether the unit says something; it may begin in the middle of a word, so it is read three times."""
    words = Counter(_WORD.findall(_TAG.sub(" ", unit * 3)))
    return sum(count > 1 for count in words.values()) >= _WORDS_MIN


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
