"""Results that are nearly the same: noise that no pattern knows, and calls that spoil what they edit.

Near are results that differ in figures only, that hold the same lines or items in another order, or that are alike by
the threshold. News looks near, too: a text that goes on where the older one ends, JSON in which a status says another
word, and a text that is hardly anything but its figures are progress.

Invariants: `CHARS` at each end of a result for what costs more than a search; `LINES_MAX` lines are sorted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rapidfuzz import fuzz

from reliability.loops.comparison.findings import Memo, dumps
from reliability.loops.comparison.same_result import count_shared_ends, is_same_result

CHARS = 2_000
LINES_MAX = 2_000
#: A line shorter than this can't tell where one text goes on in the other.
ANCHOR_CHARS = 4
ANCHORS_MAX = 16
#: A text with fewer letters, or with a larger share of figures that differ, is content and no noise.
LETTERS_MIN = 10
FIGURE_CHARS = 8
FIGURES_MAX = 0.4
DEPTH = 6
_FIGURE = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\d{1,4}(?:[:/-]\d\d){2}(?:[T ]\d\d:\d\d(?::\d\d)?)?(?:[.,]\d+)?"
    r"|\b\d{1,2}:\d\d\b"
    r"|(?<![a-z0-9])(?=[0-9a-f]{0,63}\d)[0-9a-f]{7,64}(?![a-z0-9])"
    r"|\d+(?:[.,]\d+)*",
    re.IGNORECASE,
)
_STATES = frozenset({"status", "state", "phase", "stage", "step", "progress", "cursor", "position"})


def is_near_result(
    older: str,
    newer: str,
    threshold: float,
    memo: Memo | None = None,
    same: Callable[[str, str], bool] = is_same_result,
) -> bool:
    """Return whether the two are nearly, and not quite, the same, and the difference is no progress by itself. `same`:
    `is_same_result`, or one that remembers."""
    a, b = older.strip(), newer.strip()
    if not a or not b or same(older, newer):
        return False
    if _is_shuffled(a, b):
        return True
    memo = Memo() if memo is None else memo
    known_a, value_a = memo.parse(older)
    known_b, value_b = memo.parse(newer)
    if known_a and known_b:
        if _collect_states(value_a) != _collect_states(value_b):
            return False
        a, b = _spell(value_a), _spell(value_b)
    return a == b or _is_near_text(a, b, threshold)


def _is_near_text(a: str, b: str, threshold: float) -> bool:
    x, y = find_difference(a, b)
    if mask_figures(x) == mask_figures(y):
        return _has_words_enough(a, x, y)
    shared = 1 - max(len(x), len(y)) / max(len(a), len(b), 1) if max(len(x), len(y)) <= 2 * CHARS else 0.0
    return shared + (1 - shared) * fuzz.ratio(x, y) / 100 >= threshold and not _continues(a, b)


def find_difference(a: str, b: str) -> tuple[str, str]:
    """Find where two texts differ, without the lines that they share at both ends and a long middle."""
    start, end = count_shared_ends(a, b)
    return clip(a[start : len(a) - end]), clip(b[start : len(b) - end])


def clip(text: str) -> str:
    """Cut the middle out of a long text."""
    return text if len(text) <= 2 * CHARS else f"{text[:CHARS]}\n{text[-CHARS:]}"


def mask_figures(text: str) -> str:
    """Put one sign in the place of every number, clock, date and hash."""
    return _FIGURE.sub("0", text)


def find_figures(text: str) -> list[re.Match[str]]:
    """Find what `mask_figures` masks, in order."""
    return list(_FIGURE.finditer(text))


def _has_words_enough(text: str, x: str, y: str) -> bool:
    """Return whether the figures in which `x` and `y` differ stand in a text that says something beside them."""
    pairs = zip(find_figures(x), find_figures(y), strict=True)
    changed = sum(min(len(older[0]), FIGURE_CHARS) for older, newer in pairs if older[0] != newer[0])
    letters = sum(map(str.isalpha, mask_figures(clip(text))))
    return letters >= LETTERS_MIN and changed <= FIGURES_MAX * len(text)


def _is_shuffled(a: str, b: str) -> bool:
    if not 2 <= a.count("\n") <= LINES_MAX or a.count("\n") != b.count("\n"):
        return False
    return sorted(map(str.strip, a.split("\n"))) == sorted(map(str.strip, b.split("\n")))


def _spell(value: Any) -> str:
    """Write JSON so that neither the order of its keys nor that of its lists counts."""
    return dumps(_sort_lists(value))


def _sort_lists(value: Any, depth: int = DEPTH) -> Any:
    if not depth:
        return value
    if isinstance(value, dict):
        return {key: _sort_lists(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list) and len(value) <= LINES_MAX:
        return sorted((_sort_lists(inner, depth - 1) for inner in value), key=dumps)
    return value


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


def _collect_states(value: Any, depth: int = DEPTH) -> list[Any]:
    """Collect the words of all fields that tell a state; one that is a number is judged by how it moves."""
    if not depth:
        return []
    if isinstance(value, dict):
        mine = [(k, v) for k, v in value.items() if k.lower() in _STATES and isinstance(v, str)]
        return [*sorted(mine), *(found for v in value.values() for found in _collect_states(v, depth - 1))]
    if isinstance(value, list):
        return [found for v in value for found in _collect_states(v, depth - 1)]
    return []
