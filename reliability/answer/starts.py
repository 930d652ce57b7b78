"""Texts that are looked for at one place of a text that may end in the middle of one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

from reliability.tools.formats import beginnings

DELIMITER_MAX = 400  # characters that are looked at to tell whether something begins
PARTIAL: Final = "partial"
Partial = Literal["partial"]


class Starts:
    """Texts that are looked for at one place: one of them complete, or the beginning of one with
    which the text ends."""

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
