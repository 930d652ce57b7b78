"""Calls that are calls only where nothing stands behind them, and stand in a row.

    {"search": {"query": "x"}}        ["search(query='x')"]        [search]

At the end of an answer such a text is a call, before other text it is data. Before a call it waits (`CallRun`): of a
row all are calls or none is. `goes_on` tells of an unfinished answer whether the next call of a row may follow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from reliability.tool_calls import RawCall
from reliability.tools.format_row import NAME
from reliability.tools.schema.toolbox import ToolBox
from reliability.tools.turns import may_give_result

_BETWEEN = re.compile(
    r"(?:[\s,;\\]|\b(?:and|then|also)\b(?=[ \t,:]*(?:\n|\Z))|(?:#|//)[^\n]{0,200}(?:\n|\Z))*+"
    r"(?:`{3,8}[\w+.#-]{0,32}\s*+){0,2}",
    re.IGNORECASE,
)
_CUT_JOINT = re.compile(r"(?:an?|th?|the|al|als|/)\Z", re.IGNORECASE)
_REST = re.compile(r"[ \t\r\n`]*+\Z")
_BRACKETED = re.compile(rf"\[{NAME}\]\s*+")
_CALLED = re.compile(rf"[\"'`]?({NAME})[\"'`]?\s{{0,8}}(?=\()")
_CUT_NAME = re.compile(rf"{NAME}\Z")
_SIGN = re.compile(
    r"[()\[\]{}]|\"(?:[^\"\\]|\\.)*+(?:\"|\\?\Z)|(?<=[=(,:\[{\s])'(?:[^'\\]|\\.)*+(?:'|\\?\Z)", re.DOTALL
)


class Waiting(NamedTuple):
    """Calls that wait, and where they stand."""

    start: int
    end: int
    calls: Sequence[RawCall]


class CallRun:
    """What waits, one right behind the other."""

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.broken: int | None = None  # where the first begins that can't be read

    def note_broken(self, start: int) -> None:
        """Note a row of Python calls that can't be read: its last one may have yet to come."""
        self.broken = start if self.broken is None else self.broken

    def may_go_on(self, text: str, box: ToolBox) -> bool:
        """Return whether a row may stand at the end of the text, in which the last call has yet to come."""
        begins = self.end if self.waiting else self.broken
        return begins is not None and goes_on(text, begins, box)

    @property
    def end(self) -> int:
        """The place behind the last that waits; 0 where none does."""
        return self.waiting[-1].end if self.waiting else 0

    def add(self, text: str, start: int, end: int, calls: Sequence[RawCall]) -> None:
        """Let calls wait that stand here; those before them go on waiting where nothing stands between."""
        if start < self.end:
            return
        if not self.reaches(text, start):
            self.waiting = []
        self.waiting.append(Waiting(start, end, calls))

    def take(self, text: str, start: int) -> list[Waiting]:
        """Return those that are calls since one that counts begins here, and wait for none any more."""
        taken, self.waiting = self.waiting if self.reaches(text, start) else [], []
        return taken

    def reaches(self, text: str, start: int) -> bool:
        """Return whether what waits stands right before this place."""
        between = _BETWEEN.match(text, self.end) if self.waiting else None
        return between is not None and self.end <= start <= between.end() and not text[between.end() : start].strip()


def ends_here(text: str, at: int) -> bool:
    """Return whether nothing but white space and a fence stands behind this place."""
    return _REST.match(text, at) is not None


def goes_on(text: str, at: int, box: ToolBox) -> bool:
    """Return whether the text behind this place, which ends too early to tell, may become a call in a row of them: its
    brackets are open, or they have yet to come."""
    while True:
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
        if between is not None and at == len(text) and between[0].strip():
            return True
        if _CUT_JOINT.match(text, at) or may_give_result(text, at):
            return True
        head = _BRACKETED.match(text, at)
        if head is not None and head.end() == len(text):
            return True
        called = None if head else _CALLED.match(text, at)
        if called is not None and box.find(called[1].replace("\\", "")) is None:
            return False
        start = head.end() if head else called.end() if called else at
        if text[start : start + 1] not in ("{", "[", "("):
            cut = _CUT_NAME.match(text, start)
            return cut is not None and any(tool.name.startswith(cut[0]) for tool in box.tools)
        end = _find_end(text, start)
        if end is None:
            return True
        at = end


def _find_end(text: str, at: int) -> int | None:
    """Find the place behind the bracket that closes the one here; None where the text ends before."""
    depth = 0
    for sign in _SIGN.finditer(text, at):
        depth += 1 if sign[0] in "([{" else -1 if sign[0] in ")]}" else 0
        if depth == 0:
            return sign.end()
    return None
