"""Results that are nearly the same: noise that no pattern knows, and calls that spoil what they edit.

Near are results that differ in figures only, that hold the same lines or items in another order, or that are alike by
the threshold. News looks near, too: a text that goes on where the older one ends, JSON in which a status says another
word, a text that is hardly anything but its figures, and another picture, but in a failure, are progress.

What changes from lap to lap of a streak is asked of the whole streak (`find_movement`). Where most figures tell
nothing, one that drifts is chance.

    figure (with the words beside it as its name)                      tells
    counts the repetitions: "called 9 times", "attempt 4"              nothing
    moves one way, and is named as a way to an end: `%`, "3 of 9"      PROGRESS, but not in a failure
    moves one way by unlike steps, goes down, or is an age             DRIFT: it may be news
    goes up by the same step each lap, or up and down                  nothing; in a step's result DRIFT
    is no number (a clock, a hash)                                     nothing
    is a price                                                         DRIFT

Words that no lap before has said tell, too (the next page of a list), and so does a hash or a name that is new in every
lap, of a call that makes something. A text of which every lap takes something away comes to its end: DRIFT.

Invariants: `_CHARS` at each end of a result for what costs more than a search; `_LINES_MAX` lines are sorted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from itertools import islice, pairwise
from typing import Any

from rapidfuzz import fuzz
from rapidfuzz.distance import Postfix, Prefix

from reliability.loops.comparison.findings import PART, Memo, dumps, has_failed
from reliability.loops.comparison.same_result import count_shared_ends
from reliability.loops.comparison.volatile_fields import MOMENT, UUID, word_set, words_of

_CHARS = 2_000
_LINES_MAX = 2_000
_ANCHOR_CHARS = 4  # a line shorter than this can't tell where one text goes on in the other
_ANCHORS_MAX = 16
_LETTERS_MIN = 10  # a text with fewer letters, or with a larger share of figures that differ, is content and no noise
_FIGURE_CHARS = 8
_FIGURES_MAX = 0.4
_DIGITS, _BLANKS = re.compile("[0-9]+"), re.compile("[ \t]+")
_DEPTH = 6
_FIGURE = re.compile(
    rf"(?=\d|(?<![a-z0-9])[a-f])(?:\b{UUID}\b"
    r"|\d{1,4}(?:[:/-]\d\d){2}(?:[T ]\d\d:\d\d(?::\d\d)?)?(?:[.,]\d+)?"
    r"|\b\d{1,2}:\d\d\b"
    r"|(?<![a-z0-9])(?=[0-9a-f]{0,63}\d)[0-9a-f]{7,64}(?![a-z0-9])"
    r"|\d+(?:[.,]\d+)*)",
    re.IGNORECASE,
)
_TIME = r"\d+(?:[.,]\d+)?"
_PASSING = re.compile(
    rf"(?=\d|[mtwfs][a-z]{{2}})(?:{MOMENT.pattern}|\b\d{{1,2}}:\d\d(?::\d\d)?(?:[.,]\d+)?\b"
    rf"|(?:\b\d+ \()?(?<![\w.])(?:{_TIME} ?(?:secs?|seconds?|mins?|minutes?|hrs?|hours?|days?)\b[ ,]*|{_TIME}s\b"
    r"|(?:\d+[dhms]){2,4}\b|\d+[dhm](?= ago\b|\)|\s*$))+(?: ?ago\)?)?)",
    re.IGNORECASE | re.MULTILINE,
)
_AGED = re.compile(rf"(\b(?:elapsed|duration|uptime|age|waited)\w{{0,12}}[\"' ]*[:=][\"' ]*){_TIME}", re.IGNORECASE)
_COUNTS_DOWN = re.compile(r"\b(?:eta|left|remaining|to go|estimated|next|until|expires)\b", re.IGNORECASE)
_STATES = word_set("status state phase stage step progress cursor position")


def is_near_result(older: str, newer: str, threshold: float, memo: Memo) -> bool:
    """Return whether two results that aren't the same are nearly so, and the difference is no progress by itself."""
    a, b = older.strip(), newer.strip()
    if not a or not b or (PART.findall(a) != PART.findall(b) and not has_failed(newer)):
        return False
    if _is_shuffled(a, b, memo):
        return True
    known_a, value_a = memo.parse(older)
    known_b, value_b = memo.parse(newer)
    if known_a and known_b:
        states, a = _read_value(older, value_a, memo)
        others, b = _read_value(newer, value_b, memo)
        if states != others:
            return False
    if a == b:
        return True
    x, y = find_difference(a, b)
    if mask_once(x, memo) == mask_once(y, memo):
        return _has_words_enough(a, x, y, memo)
    shared = 1 - max(len(x), len(y)) / max(len(a), len(b), 1) if max(len(x), len(y)) <= 2 * _CHARS else 0.0
    return shared + (1 - shared) * fuzz.ratio(x, y) / 100 >= threshold and not _continues(a, b)


def find_difference(a: str, b: str) -> tuple[str, str]:
    """Find where two texts differ, without the lines that they share at both ends and a long middle."""
    start, end = count_shared_ends(a, b)
    return _clip(a[start : len(a) - end]), _clip(b[start : len(b) - end])


def _clip(text: str) -> str:
    """Cut the middle out of a long text."""
    return text if len(text) <= 2 * _CHARS else f"{text[:_CHARS]}\n{text[-_CHARS:]}"


def find_other_digits(a: str, b: str, most: int) -> tuple[str, ...]:
    """Find where the two texts differ in digits, with what stands beside it, in `most` characters; else nothing."""
    start = max(0, Prefix.similarity(a, b) - _LABEL_BEFORE)
    end = max(0, Postfix.similarity(a[start:], b[start:]) - _LABEL_BEFORE)
    parts = tuple(text[start : len(text) - end] for text in (a, b))
    if max(map(len, parts)) > most or len({_DIGITS.sub("", part) for part in parts}) > 1:
        return ()
    return parts


def mask_figures(text: str) -> str:
    """Put one sign in the place of every number, clock, date and hash."""
    return _FIGURE.sub("0", text)


def mask_once(text: str, memo: Memo) -> str:
    """Mask as `mask_figures` does, each text once."""
    return memo.once(("masked", text), lambda: mask_figures(text))


def mask_times(text: str, memo: Memo) -> str:
    """Put one sign in the place of all that only says that time has passed; of what is left until an end, nothing."""
    if len(text) > _CHARS or _COUNTS_DOWN.search(text):
        return text.strip()
    return memo.once(("times", text), lambda: _BLANKS.sub(" ", _AGED.sub(r"\g<1>0", _PASSING.sub("0", text))).strip())


def _list_figures(text: str, memo: Memo) -> list[str]:
    return memo.once(("figures", text), lambda: _FIGURE.findall(text))


def _has_words_enough(text: str, x: str, y: str, memo: Memo) -> bool:
    """Return whether the figures in which `x` and `y` differ stand in a text that says something beside them."""
    pairs = zip(_list_figures(x, memo), _list_figures(y, memo), strict=True)
    changed = sum(min(len(older), _FIGURE_CHARS) for older, newer in pairs if older != newer)
    letters = sum(map(str.isalpha, mask_once(_clip(text), memo)))
    return letters >= _LETTERS_MIN and changed <= _FIGURES_MAX * len(text)


def _is_shuffled(a: str, b: str, memo: Memo) -> bool:
    """Return whether the two hold the same lines in another order, but for their digits."""
    if not 2 <= a.count("\n") <= _LINES_MAX or a.count("\n") != b.count("\n"):
        return False
    x, y = _list_lines(a, memo), _list_lines(b, memo)
    if x != y:
        return sorted(x) == sorted(y)
    # What stands in the same order is judged by its figures.
    return sorted(map(str.strip, a.split("\n"))) == sorted(map(str.strip, b.split("\n")))


def _list_lines(text: str, memo: Memo) -> list[str]:
    """List the lines of a text without their digits."""
    return memo.once(("lines", text), lambda: list(map(str.strip, _DIGITS.sub("", text).split("\n"))))


def _read_value(text: str, value: Any, memo: Memo) -> tuple[list[Any], str]:
    """Return the states that a value tells, and its JSON, in which neither the order of keys nor of lists counts."""
    return memo.once(("value", text), lambda: (_collect_states(value), dumps(_sort_lists(value))))


def _sort_lists(value: Any, depth: int = _DEPTH) -> Any:
    if not depth:
        return value
    if isinstance(value, dict):
        return {key: _sort_lists(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list) and len(value) <= _LINES_MAX:
        return sorted((_sort_lists(inner, depth - 1) for inner in value), key=dumps)
    return value


def _continues(older: str, newer: str) -> bool:
    """Return whether the newer text begins inside the older one and goes on after its end."""
    anchor, at = newer.split("\n", 1)[0], 0
    for _ in range(_ANCHORS_MAX + 1):
        # Its last character first: a text is copied only where it may fit.
        last = len(older) - at - 1
        if last < len(newer) and newer[last] == older[-1] and newer.startswith(older[at:]):
            return True
        at = older.find(anchor, at + 1) if len(anchor) >= _ANCHOR_CHARS else -1
        if at < 0:
            return False
    return False


def _collect_states(value: Any, depth: int = _DEPTH) -> list[Any]:
    """Collect the words of all fields that tell a state; one that is a number is judged by how it moves."""
    if not depth:
        return []
    if isinstance(value, dict):
        mine = [(k, v) for k, v in value.items() if k.lower() in _STATES and isinstance(v, str)]
        return [*sorted(mine), *(found for v in value.values() for found in _collect_states(v, depth - 1))]
    if isinstance(value, list):
        return [found for v in value for found in _collect_states(v, depth - 1)]
    return []


LAPS_MAX = 8
#: So many new pairs of words in every lap are more than a random name; so many are more than a tip or an advertisement.
_NEWS_DRIFT, _NEWS_PROGRESS = 6, 16
#: A word, and no part of a digest.
_WORD = re.compile(r"(?<![\w+/=-])[^\W\d_]{2,20}(?![\w+/=-])")
#: A hash, or a part of a name; a number isn't any.
_NAME = re.compile(
    r"(?<![a-z0-9])(?:(?=[a-f]{0,63}\d)(?=\d{0,63}[a-f])[0-9a-f]{7,64}(?![a-z0-9])|[a-z]{2,20})", re.IGNORECASE
)
_LABEL_BEFORE, _LABEL_BEHIND = 32, 20
_COLUMNS_MAX = 400

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


def find_movement(texts: Sequence[str], failed: bool, step: bool = False, makes: bool = False) -> Movement:
    """Tell where the figures and words go in the results of one call, oldest first. `failed`: the newest says that the
    call failed. `step`: the call leads on. `makes`: it may make other things, or go on to them."""
    laps = _trim_shared([text.strip() for text in texts[-LAPS_MAX:]])
    if failed or len(laps) < 2:
        return Movement.NOTHING
    news = max(_find_news(laps, makes), Movement.DRIFT if _shrinks(laps) else Movement.NOTHING)
    figures = [list(islice(_FIGURE.finditer(lap), _COLUMNS_MAX)) for lap in laps]
    if len({len(found) for found in figures}) > 1:
        return news
    told = Counter[Movement]()
    for column in zip(*figures, strict=True):
        values = [match[0] for match in column]
        if any(value != values[0] for value in values):
            told[_judge_column(values, laps[-1], column[-1], step)] += 1
    if told[Movement.PROGRESS]:
        return Movement.PROGRESS
    return max(news, Movement.DRIFT) if told[Movement.DRIFT] > (0 if step else told[Movement.NOTHING]) else news


def _find_news(laps: Sequence[str], makes: bool) -> Movement:
    """Tell whether every lap says in words, or in names of what it makes, what none before it said."""
    least = _count_news([set(pairwise(_WORD.findall(lap))) for lap in laps])
    if least >= _NEWS_PROGRESS:
        return Movement.PROGRESS
    names = makes and _count_news([set(_NAME.findall(lap)) for lap in laps]) > 0
    return Movement.DRIFT if least >= _NEWS_DRIFT or names else Movement.NOTHING


def _shrinks(laps: Sequence[str]) -> bool:
    """Return whether every lap is the one before it without one piece, but for the figures."""
    plain = [_DIGITS.sub("", lap) for lap in laps]
    return all(
        len(newer) < len(older) and Prefix.similarity(older, newer) + Postfix.similarity(older, newer) >= len(newer)
        for older, newer in pairwise(plain)
    )


def _count_news(said: Sequence[set[Any]]) -> int:
    """Count what every lap says, at the least, that none before it said."""
    return min(len(said[at].difference(*said[:at])) for at in range(1, len(said)))


def _trim_shared(texts: list[str]) -> list[str]:
    """Leave out the lines that all the texts share at both ends, and the middle of what is long all the same."""
    ends = [count_shared_ends(texts[0], text) for text in texts[1:] if text != texts[0]]
    start, end = min((start for start, _ in ends), default=0), min((end for _, end in ends), default=0)
    return [_clip(text[start : len(text) - end]) for text in texts]


def _judge_column(values: list[str], text: str, place: re.Match[str], step: bool) -> Movement:
    if not all(map(_NUMBER.fullmatch, values)):
        return Movement.NOTHING
    moves = [newer - older for older, newer in pairwise(map(_read_number, values))]
    turns = min(moves) < 0 < max(moves)
    start, end = place.span()
    before = text[max(0, start - _LABEL_BEFORE) : start].rsplit("\n", 1)[-1]
    behind = text[end : end + _LABEL_BEHIND].split("\n", 1)[0]
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
