"""Whether two results say the same of the world.

A replay changes the volatile fields of a call (how long it took, when, under which id) and nothing else, so two results
that differ in those alone are the same. Any other digit that changes is a reading of the world, and progress. A field
is volatile by its name or by a form that nothing else has; whole seconds that have grown are the age of something. A
naked value that stands alone is content.

Only lines and fields that differ are looked at. Invariant: beyond `MASKED_CHARS`, `_LINES_MAX`, `_VALUES_MAX` or
`_DEPTH_MAX`, or what the request's `Memo` still masks, two results differ.
"""

from __future__ import annotations

import re
from typing import Any

from rapidfuzz.distance import Postfix, Prefix

from reliability.loops.comparison import volatile_fields
from reliability.loops.comparison.findings import Memo, parse
from reliability.loops.comparison.volatile_fields import ONGOING_WORDS, STATUS_KEYS, names_state, word_set, words_of

MASKED_CHARS = 16_000
_LINES_MAX = 50_000
_VALUES_MAX = 50_000
_STATUS_CHARS = 2_000
_AROUND_CHARS = 96  # what is masked with a difference: room for its label and for the rest of the value
#: A line that isn't longer is masked as a whole: it is the same text in every comparison.
_WHOLE_CHARS = 2 * _AROUND_CHARS
_DEPTH_MAX = 40
_HOLE = "\x00"
_NEAR_CHARS = 32  # how far from a duration the words count that say "not finished yet"
#: Words of what somebody has written down, such as an order: it stays pending for days.
_RECORDS = word_set(
    "order orders item items price prices amount payment payments address customer invoice reservation "
    "passengers product cabin refund shipping zip"
)
#: How deep a field may lie that tells how a job stands, and how many values are looked at.
_STATUS_DEPTH, _STATUS_VALUES = 4, 200

#: `pending` is also what orders and invoices are: of these it says nothing (`_RECORDS`).
_GOING_ON = ONGOING_WORDS | {"pending"}
UNDONE_FIELDS = 2  # what is not done is a job's report if it has no more fields: a record of a to-do has
_DONE_KEYS = frozenset((word,) for word in ("done", "ready", "finished", "complete", "completed"))
#: JSON objects and arrays only: a bare number or string is text.
_JSON_BEGINS = re.compile(r"\s*+[{\[]")
_ONGOING = "|".join(sorted(ONGOING_WORDS)).replace(" ", "[ _-]")
_STATUS_LINE = re.compile(
    rf"^[ \t]*(?:{'|'.join(STATUS_KEYS)})[ \t]*[:=][ \t]*[\"']?(?:{_ONGOING})\b", re.IGNORECASE | re.MULTILINE
)
#: A row of a table one of whose columns tells that something goes on; a sentence with such a word is none.
_STATUS_COLUMN = re.compile(
    r"^(?=[^\n]{1,160}$)(?:[^\n]*(?:\t|  )|\S+ \d+/\d+ |[*•-] [^\n]{0,80}?\s)\s*"
    r"(?:pending|queued|in[ _]progress|running|waiting|containercreating|podinitializing|terminating|init:\d+/\d+)"
    r"(?=\t|  | ?$|\s+\d)",
    re.IGNORECASE | re.MULTILINE,
)
_STATUS_JSON_CHARS = 20_000  # a report on a job is short; a longer one isn't parsed only to see whether it goes on


#: A line begins with the seconds of a clock, where two such stand no further apart than two calls; else they count.
_EPOCH = re.compile(r"[\s\[(\"]*(?P<v>(?:1[6-9]|20)\d{8}(?:\d{3}|\d{6}|\d{9}|\.\d{1,9})?)(?=[\s:,\])\"]|$)")
_EPOCH_DIGITS, _EPOCH_APART_S = 10, 3_600
_REMARK_CHARS = 1_000
_REMARK = re.compile(r"\n\[[^\]\n]{0,60}\b(?:loop|repeat\w{0,8}|identical)\b", re.IGNORECASE)


def is_same_result(older: str, newer: str, memo: Memo | None = None) -> bool:
    """Return whether the two results say the same of the world. `memo`: what is known of this request's results."""
    if older == newer or older.strip() == newer.strip():
        return True
    older, newer = _drop_remark(older), _drop_remark(newer)
    memo = Memo() if memo is None else memo
    known_a, a = memo.parse(older) if _JSON_BEGINS.match(older) else (False, None)
    known_b, b = memo.parse(newer) if _JSON_BEGINS.match(newer) else (False, None)
    comparison = _Comparison(memo)
    if known_a and known_b:
        return bool(comparison.compare_values(a, b, "", _DEPTH_MAX))
    return not (known_a or known_b) and bool(comparison.compare_texts(older.strip(), newer.strip()))


def _drop_remark(text: str) -> str:
    """Drop what a harness adds behind a result to say that the call was repeated: it is none of the result."""
    if not text.endswith("]", 0, len(text.rstrip())):
        return text
    begins = text.rfind("\n[", max(0, len(text) - _REMARK_CHARS))
    return text[:begins].rstrip() if begins >= 0 and _REMARK.match(text, begins) else text


def is_ongoing(text: str) -> bool:
    """Return whether the result says that what was asked about still goes on: then asking again is polling."""
    known, value = parse(text[:_STATUS_JSON_CHARS]) if _JSON_BEGINS.match(text) else (False, None)
    if known:
        return _is_undone(value) or _holds_ongoing(value)
    return bool(_STATUS_LINE.search(text[:_STATUS_CHARS]) or _STATUS_COLUMN.search(text[:_STATUS_CHARS]))


def _is_undone(value: Any) -> bool:
    few = isinstance(value, dict) and len(value) <= UNDONE_FIELDS
    return few and any(item is False and words_of(key)[-1:] in _DONE_KEYS for key, item in value.items())


def _holds_ongoing(value: Any) -> bool:
    """Return whether some object in the value, not too deep in it, says that it goes on."""
    level, seen = [value], 1
    for _ in range(_STATUS_DEPTH):
        objects = [item for item in level if isinstance(item, dict)]
        names = {word for value in objects for key in value for word in words_of(key)}
        if seen > _STATUS_VALUES or not _RECORDS.isdisjoint(names):
            return False
        words = (word for value in objects for key, word in value.items() if key.lower() in STATUS_KEYS)
        if any(isinstance(word, str) and len(word) <= 40 and names_state(word, _GOING_ON) for word in words):
            return True
        level = [inner for item in level for inner in _list_inner(item)]
        seen += len(level)
    return False


def _list_inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return []
    return [item for item in value[:_STATUS_VALUES] if isinstance(item, (dict, list))]


class _Comparison:
    """One comparison of two results. Each method returns None where they differ, else how much they share beside
    volatile fields: 0 means that there is nothing but naked ones."""

    def __init__(self, memo: Memo) -> None:
        self.memo = memo
        self.left = MASKED_CHARS
        self.values_left = _VALUES_MAX

    def compare_values(self, a: Any, b: Any, key: str, depth: int) -> int | None:
        self.values_left -= 1
        if not depth or self.values_left < 0:
            return None
        if isinstance(a, dict) and isinstance(b, dict):
            return self.compare_objects(a, b, depth - 1)
        if isinstance(a, list) and isinstance(b, list):
            return self.compare_lists(a, b, key, depth - 1)
        if a == b and isinstance(a, bool) is isinstance(b, bool):
            return 1
        if volatile_fields.is_volatile(key, a, b):
            return 0
        texts = isinstance(a, str) and isinstance(b, str) and not volatile_fields.is_reading(key)
        return self.compare_texts(a, b) if texts else None

    def compare_objects(self, a: dict[str, Any], b: dict[str, Any], depth: int) -> int | None:
        """Compare field by field; only a volatile one may be missing on one side."""
        shared = 0 if a or b else 1
        for key in [*a, *(key for key in b if key not in a)]:
            if key in a and key in b:
                found = self.compare_values(a[key], b[key], key, depth)
            else:
                present = a.get(key, b.get(key))
                found = 0 if volatile_fields.is_volatile(key, present, present) else None
            if found is None:
                return None
            shared += found
        return shared

    def compare_lists(self, a: list[Any], b: list[Any], key: str, depth: int) -> int | None:
        """Compare item by item; a list is content by its length."""
        pairs = zip(a, b, strict=False)
        differ = len(a) != len(b) or any(self.compare_values(x, y, key, depth) is None for x, y in pairs)
        return None if differ else 1

    def compare_texts(self, a: str, b: str) -> int | None:
        """Compare line by line; only lines that differ are masked."""
        start, end = count_shared_ends(a, b)
        content = int(_has_content(a[:start]) or _has_content(a[len(a) - end :]))
        a, b = a[start : len(a) - end], b[start : len(b) - end]
        if (count := a.count("\n")) != b.count("\n") or count >= _LINES_MAX:
            return None
        for x, y in zip(a.split("\n"), b.split("\n"), strict=True):
            masked = x if x == y else self.mask_both(x, y)
            if masked is None:
                return None
            content = content or int(_has_content(masked))
        return content

    def mask_both(self, x: str, y: str) -> str | None:
        """Mask both lines; None where they differ in more, or where the bound is reached."""
        x, y = _mask_epochs(*_cut_to_difference(x, y))
        self.left -= len(x) + len(y)
        if self.left < 0:
            return None
        masked = self.memo.mask(x, _mask)
        return masked if masked is not None and masked == self.memo.mask(y, _mask) else None


def _cut_to_difference(x: str, y: str) -> tuple[str, str]:
    """Cut the two lines to where they differ and what stands around it."""
    if max(len(x), len(y)) <= _WHOLE_CHARS:
        return x, y
    start = Prefix.similarity(x, y)
    end = Postfix.similarity(x[start:], y[start:])
    lowest = max(0, start - _AROUND_CHARS)
    ends = len(x) - end + _AROUND_CHARS, len(y) - end + _AROUND_CHARS
    return _cut(x, lowest, ends[0]), _cut(y, lowest, ends[1])


def _mask_epochs(x: str, y: str) -> tuple[str, str]:
    """Mask the seconds with which both lines begin, where they are moments of one clock."""
    a, b = _EPOCH.match(x), _EPOCH.match(y)
    if a is None or b is None or len(a["v"].split(".")[0]) != len(b["v"].split(".")[0]):
        return x, y
    apart = abs(int(a["v"][:_EPOCH_DIGITS]) - int(b["v"][:_EPOCH_DIGITS]))
    return (_make_hole(a) + x[a.end() :], _make_hole(b) + y[b.end() :]) if apart <= _EPOCH_APART_S else (x, y)


def _has_content(text: str) -> bool:
    return bool(text.replace(_HOLE, "").strip())


def count_shared_ends(a: str, b: str) -> tuple[int, int]:
    """Count the characters of whole lines that the two share at their beginning, and those at their end."""
    start = a.rfind("\n", 0, Prefix.similarity(a, b)) + 1
    end = Postfix.similarity(a[start:], b[start:])
    line = a.find("\n", len(a) - end)
    return start, 0 if line < 0 else len(a) - line


def _cut(line: str, start: int, end: int) -> str:
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def _mask(line: str) -> str:
    for pattern in volatile_fields.VOLATILE_FORMS:
        line = pattern.sub(_make_hole, line)
    for pattern in volatile_fields.DURATIONS:
        line = pattern.sub(_make_hole_unless_ongoing, line)
    return line


def _make_hole(match: re.Match[str]) -> str:
    start, end = match.span("v")
    if volatile_fields.READING_NEAR.search(match.string[max(0, start - _NEAR_CHARS) : start]):
        return match.group()
    return match.string[match.start() : start] + _HOLE + match.string[end : match.end()]


def _make_hole_unless_ongoing(match: re.Match[str]) -> str:
    around = match.string[max(0, match.start() - _NEAR_CHARS) : match.end() + _NEAR_CHARS]
    return match.group() if volatile_fields.ONGOING_NEAR.search(around) else _make_hole(match)
