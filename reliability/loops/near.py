"""Results that are nearly the same: a call that is repeated for nothing, or that spoils what it edits.

Two loops escape every exact rule: noise that no pattern knows, and a mutating call (the same insert, over and
over) whose own effect changes the result a little each time. Both show as identical calls whose results are
at least 90 % alike and never equal. Five repetitions of that break; fewer don't even nudge, since a near result may
be news.

News looks near, too, so these are progress and never count:
- results that differ in digits only (a counter, a percentage, a line number);
- a text that flows: the newer one goes on where the older one ends (a log that grows, a tail that slides);
- JSON in which a status-like field has changed.

And every result must differ from the one before it. Noise comes each time; a state that changed once is news.
Bound: `CHARS` at each end of a result for what costs more than a search.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rapidfuzz import fuzz

from reliability.loops.canonical import parse
from reliability.loops.same_result import Parse, is_same_result

__all__ = ["is_near_result"]

CHARS = 2_000
#: A line shorter than this can't tell where one text goes on in the other.
ANCHOR_CHARS = 4
ANCHORS_MAX = 16
_DIGITS = re.compile(r"\d+")
_STATES = frozenset({"status", "state", "phase", "stage", "step", "progress", "cursor", "position"})


def is_near_result(
    older: str, newer: str, threshold: float, parse: Parse = parse, same: Callable[[str, str], bool] = is_same_result
) -> bool:
    """Return whether the two are at least `threshold` alike, not the same, and the difference is no progress. `parse`
    and `same`: those of `canonical` and `same_result`, or some that remember."""
    a, b = _clip(older.strip()), _clip(newer.strip())
    if not a or not b or fuzz.ratio(a, b, score_cutoff=100 * threshold) == 0 or same(older, newer):
        return False
    return not (
        _only_digits_differ(a, b) or _continues(older.strip(), newer.strip()) or _states_differ(older, newer, parse)
    )


def _clip(text: str) -> str:
    return text if len(text) <= 2 * CHARS else f"{text[:CHARS]}\n{text[-CHARS:]}"


def _only_digits_differ(a: str, b: str) -> bool:
    return _DIGITS.sub("0", a) == _DIGITS.sub("0", b)


def _continues(older: str, newer: str) -> bool:
    """Return whether the newer text begins inside the older one and goes on after its end."""
    if newer.startswith(older):
        return True
    anchor = newer.split("\n", 1)[0]
    if len(anchor) < ANCHOR_CHARS:
        return False
    at = older.find(anchor)
    for _ in range(ANCHORS_MAX):
        if at < 0:
            return False
        # Its last character first: a text is copied only where it may fit.
        last = len(older) - at - 1
        if at > 0 and last < len(newer) and newer[last] == older[-1] and newer.startswith(older[at:]):
            return True
        at = older.find(anchor, at + 1)
    return False


def _states_differ(older: str, newer: str, parse: Parse) -> bool:
    """Return whether both are JSON objects and a field that tells a state has another value."""
    known_a, a = parse(older)
    known_b, b = parse(newer)
    return known_a and known_b and _collect_states(a) != _collect_states(b)


def _collect_states(value: Any, depth: int = 6) -> list[Any]:
    if not depth:
        return []
    if isinstance(value, dict):
        mine = [(k, v) for k, v in value.items() if k.lower() in _STATES and isinstance(v, (str, int, float))]
        return [*mine, *(found for v in value.values() for found in _collect_states(v, depth - 1))]
    if isinstance(value, list):
        return [found for v in value for found in _collect_states(v, depth - 1)]
    return []
