"""The head of an answer: texts that are looked for at one place (`Starts`), and marks of a turn, which are no answer if
nothing else comes (`Head`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from reliability.tools.formats import beginnings
from reliability.tools.turns import MARKS
from reliability.types import Event, Text

DELIMITER_MAX = 400  # characters that are looked at to tell whether something begins
PARTIAL: Final = "partial"
Partial = Literal["partial"]
_MARK = rf"(?:{'|'.join((*MARKS, r'<[|]end_header_id[|]>'))})"
_ONLY_MARKS = re.compile(rf"(?:\s|{_MARK})*+\Z")
_WAITS = re.compile(rf"(?:\s|{_MARK})*+(?:[<\[][|｜]?(?:[\w▁]{{1,32}}[|｜]?)?)?\Z")
_MARK_CHARS = 64


class Starts:
    """Texts that are looked for at one place: one of them complete, or its beginning at the end of the text."""

    def __init__(self, patterns: Iterable[str], flags: re.RegexFlag = re.IGNORECASE) -> None:
        patterns = tuple(patterns)
        self.complete = re.compile("|".join(f"({pattern})" for pattern in patterns), flags)
        self.partial = re.compile("|".join(map(beginnings, patterns)), flags)
        self.longer = re.compile("|".join(beginnings(pattern, complete=False) for pattern in patterns), flags)

    def find_at(self, text: str, at: int) -> re.Match[str] | Partial | None:
        """Find what stands here; the match's `lastindex` counts the patterns from 1."""
        match = self.complete.match(text, at)
        if match is not None:
            return match
        return PARTIAL if len(text) - at <= DELIMITER_MAX and self.partial.match(text, at) else None

    def may_become_another(self, text: str, at: int) -> bool:
        """Return whether a text with one of them may still become another one, which begins like it."""
        return len(text) - at <= DELIMITER_MAX and self.longer.match(text, at) is not None


class Head:
    """The head of an answer: it waits while it may still be nothing but marks. Each piece is looked at once."""

    __slots__ = ("_last", "_parts")

    def __init__(self) -> None:
        self._parts: list[str] = []  # what surely waits
        self._last = ""  # what hasn't been told yet, and the beginning of a mark

    def text(self) -> str:
        return "".join((*self._parts, self._last))

    def take(self, text: str) -> str | None:
        """Take the next piece; return the whole head where it waits no longer."""
        self._last += text
        if not may_be_marks(self._last):
            return self.text()
        # Up to here it is marks and white space.
        cut = len(self._last) - 1 if self._last[-1:].isspace() else self._last.rfind("<")
        if cut > _MARK_CHARS:
            self._parts.append(self._last[:cut])
            self._last = self._last[cut:]
        return None


def may_be_marks(text: str) -> bool:
    """Tell whether the head of an answer may still turn out to be nothing but marks and white space."""
    return _WAITS.match(text) is not None


def drop_marks(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events of an answer of which nothing has left without its text, where that is nothing but marks."""
    text = "".join(event.text for event in events if isinstance(event, Text))
    if not text.strip() or _ONLY_MARKS.match(text) is None:
        return events
    return [event for event in events if not isinstance(event, Text)]


def read_held(events: Sequence[Event], *, begun: bool) -> tuple[Sequence[Event], str]:
    """Return the held events of an answer, without marks alone unless it has `begun` to leave, and their text."""
    held = events if begun else drop_marks(events)
    return held, "".join(event.text for event in held if isinstance(event, Text))
