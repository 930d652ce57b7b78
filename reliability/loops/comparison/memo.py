"""What the loop rules have found out about one request, so that they find it out once.

A request is judged on every tier's attempt and by several rules, for every period, and each of them asks the same of
the same turns: what does this call mean, is that a poll, are these two results the same? One answer can cost
milliseconds where results are large. So a `Memo` lives as long as the request's turns and belongs to them alone: its
keys are places in the turns that act, and it must never be used with other turns or another configuration.

It also bounds the work for one request:

- `MASKED_CHARS_MAX` characters of lines are masked; each line once. Results that need more count as different, so the
  rule for nearly equal results, whose cost is bounded by itself, judges them.
- Once a streak has reached the threshold that breaks, its further repetitions change only the number that is reported.
  They are counted as long as that is cheap: `COUNTED_CHARS_MAX` characters of results that are not equal to the letter.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from reliability.loops.comparison.canonical import parse

__all__ = ["COUNTED_CHARS_MAX", "MASKED_CHARS_MAX", "Memo"]

T = TypeVar("T")

COUNTED_CHARS_MAX = 200_000
MASKED_CHARS_MAX = 48_000
PARSED_MAX = 8  # values of results that are kept: each is compared with its neighbours


class Memo:
    """The answers so far. It belongs to the turns of one request."""

    __slots__ = ("_known", "_left", "_masked", "_masking_left", "_parsed")

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}
        self._parsed: OrderedDict[str, tuple[bool, Any]] = OrderedDict()
        self._masked: dict[str, str] = {}
        self._left, self._masking_left = COUNTED_CHARS_MAX, MASKED_CHARS_MAX

    def __contains__(self, key: Hashable) -> bool:
        return key in self._known

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return what `find` returns, called the first time only."""
        try:
            found: T = self._known[key]
        except KeyError:
            found = self._known[key] = find()
        return found

    def parse(self, text: str) -> tuple[bool, Any]:
        """Parse as `canonical.parse` does."""
        found = self._parsed.get(text)
        if found is None:
            found = self._parsed[text] = parse(text)
            if len(self._parsed) > PARSED_MAX:
                self._parsed.popitem(last=False)
        return found

    def mask(self, line: str, make: Callable[[str], str]) -> str | None:
        """Return what `make` makes of the line; None once the lines of this request have used up what may be masked."""
        found = self._masked.get(line)
        if found is None and self._masking_left >= len(line):
            self._masking_left -= len(line)
            found = self._masked[line] = make(line)
        return found

    @property
    def spent(self) -> bool:
        """True once a streak may be longer than was counted."""
        return self._left < 0

    def affords(self, chars: int) -> bool:
        """Tell whether another comparison of so many characters may be made past a verdict; it is taken as made."""
        self._left -= chars
        return self._left >= 0
