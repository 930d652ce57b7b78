"""What the loop rules have found out about the turns of one request, so that they find it out once.

Every attempt, rule and period asks the same of the same turns. Keys are places in the turns that act: a memo belongs to
one request's turns and one configuration. It also bounds the work: `MASKED_CHARS_MAX` characters of lines are masked,
and past a verdict a streak is counted on only while that is cheap (`COUNTED_CHARS_MAX`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from reliability.loops.comparison.canonical import parse

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
