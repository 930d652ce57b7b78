"""What figures tell that change from lap to lap of a streak: a way to an end, a drift, or nothing.

    figure (with the words beside it as its name)                      tells
    counts the repetitions: "called 9 times", "attempt 4"              nothing
    moves one way, and is named as a way to an end: `%`, "3 of 9"      PROGRESS, but not in a failure
    moves one way by unlike steps, goes down, or is an age             DRIFT: it may be news
    goes up by the same step each lap, or up and down                  nothing; in a step's result DRIFT
    is no number (a clock, a hash)                                     nothing
    is a price                                                         DRIFT

Where most figures tell nothing, one that drifts is chance.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise

from reliability.loops.comparison.near import clip, find_figures
from reliability.loops.comparison.same_result import count_shared_ends
from reliability.loops.comparison.volatile_fields import word_set, words_of

LAPS_MAX = 8
LABEL_BEFORE, LABEL_BEHIND = 32, 20
FIGURES_MAX = 400

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_REPETITIONS = word_set(
    "attempt attempts try tries retry retries retried times call calls called repeat repeated repetition repetitions "
    "consecutive strike strikes steps turns iterations"
)
#: What a step counts as well: how far it has led.
_LAPS = word_set("steps turns iterations times time")
_ORDINAL = re.compile(r"(?:st|nd|rd|th)\b")
_ENDS = word_set(
    "progress percent percentage pct done complete completed processed finished found remaining left downloaded "
    "uploaded copied received sent transferred fetched indexed scanned imported exported migrated synced "
    "converted rendered encoded decoded crawled rows records documents bytes kb mb gb kib mib gib eta epoch epochs "
    "batch offset cursor loaded"
)
_AGES = word_set("duration elapsed age uptime seconds minutes hours secs mins since running waited")
_QUOTES = word_set("price prices quote bid ask rate rates")
_WHOLE = re.compile(r"\s?(?:%|[a-z]{0,5}\s?(?:/|of|out of)\s?\d)", re.IGNORECASE)
_RATE = re.compile(r"\s?[kmg]?i?b?(?:ytes)?/s", re.IGNORECASE)


class Movement(IntEnum):
    """What the figures tell, the most telling last."""

    NOTHING = 0
    DRIFT = 1
    PROGRESS = 2


def follow_figures(texts: Sequence[str], failed: bool, step: bool = False) -> Movement:
    """Tell where the figures go in the results of one call, oldest first, of which each differs from the next in
    little. `failed`: the newest says that the call failed. `step`: the call leads on."""
    laps = _trim_shared([text.strip() for text in texts[-LAPS_MAX:]])
    figures = [find_figures(lap)[:FIGURES_MAX] for lap in laps]
    if failed or len(laps) < 2 or len({len(found) for found in figures}) > 1:
        return Movement.NOTHING
    told = Counter[Movement]()
    for column in zip(*figures, strict=True):
        values = [match[0] for match in column]
        if any(value != values[0] for value in values):
            told[_judge_column(values, laps[-1], column[-1], step)] += 1
    if told[Movement.PROGRESS]:
        return Movement.PROGRESS
    return Movement.DRIFT if told[Movement.DRIFT] > (0 if step else told[Movement.NOTHING]) else Movement.NOTHING


def _trim_shared(texts: list[str]) -> list[str]:
    """Leave out the lines that all the texts share at both ends, and the middle of what is long all the same."""
    ends = [count_shared_ends(texts[0], text) for text in texts[1:] if text != texts[0]]
    start, end = min((start for start, _ in ends), default=0), min((end for _, end in ends), default=0)
    return [clip(text[start : len(text) - end]) for text in texts]


def _judge_column(values: list[str], text: str, place: re.Match[str], step: bool) -> Movement:
    if not all(map(_NUMBER.fullmatch, values)):
        return Movement.NOTHING
    moves = [newer - older for older, newer in pairwise(map(_read_number, values))]
    turns = min(moves) < 0 < max(moves)
    before, behind = _read_label(text, place)
    words = {*words_of(before), *words_of(behind)}
    if turns and not step:
        return Movement.NOTHING if words.isdisjoint(_QUOTES) else Movement.DRIFT
    if words & (_REPETITIONS - _LAPS if step else _REPETITIONS) or (_ORDINAL.match(behind) and not step):
        return Movement.NOTHING
    if not turns and ((not words.isdisjoint(_ENDS) and not _RATE.match(behind)) or _WHOLE.match(behind)):
        return Movement.PROGRESS
    even = all(abs(move - moves[0]) < 1e-9 for move in moves)
    return Movement.NOTHING if even and moves[0] > 0 and words.isdisjoint(_AGES) and not step else Movement.DRIFT


def _read_number(text: str) -> float:
    """Read 1,024 and 3.5; of more than one point the first part counts (a version)."""
    whole = text.replace(",", "")
    return float(whole if whole.count(".") <= 1 else whole.split(".")[0])


def _read_label(text: str, place: re.Match[str]) -> tuple[str, str]:
    start, end = place.span()
    before = text[max(0, start - LABEL_BEFORE) : start].rsplit("\n", 1)[-1]
    return before, text[end : end + LABEL_BEHIND].split("\n", 1)[0]
