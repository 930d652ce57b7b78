"""The prose of an answer while calls are taken out of it.

Prose is kept to the letter. Only what framed a call goes: the white space next to it, the fence around it,
and the commas or semicolons between two calls.
"""

from __future__ import annotations

import re

__all__ = ["Prose"]

_FRAME_BEFORE = re.compile(r"(?:`{3,}[\w-]{0,32}|<\|?(?P<tag>[A-Za-z][\w:-]{0,40})\|?>)\s*\Z")
_FENCE_AFTER = re.compile(r"\s*`{3,}")
_ONLY_SEPARATORS = re.compile(r"[\s,;]*\Z")


class Prose:
    """Pieces of prose, and the places of the calls between them."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._first_call: int | None = None
        self._after_call = False

    def add(self, text: str) -> None:
        """Prose that stands next."""
        if self._after_call:
            text = text.lstrip()
        if text:
            self._pieces.append(text)
            self._after_call = False

    def called(self, source: str, end: int) -> int:
        """A call stands next, and ends here; the place after the frame that was opened before it."""
        last = self._pieces[-1] if self._pieces else ""
        kept = last.rstrip()
        frame = _FRAME_BEFORE.search(last, max(0, len(last) - 64))
        close = _closing(frame, source, end) if frame else None
        if frame and close:
            kept, end = last[: frame.start()].rstrip(), close.end()
        if self._first_call is not None and _ONLY_SEPARATORS.match(kept):
            kept = ""
        if self._pieces:
            self._pieces[-1:] = [kept] if kept else []
        if self._first_call is None:
            self._first_call = len(self._pieces)
        self._after_call = True
        return end

    def text(self) -> str:
        """All prose."""
        return "\n".join(self._pieces).strip() if self._first_call is not None else "".join(self._pieces)

    def before(self) -> str:
        """The prose in front of the first call."""
        return "\n".join(self._pieces[: self._first_call or 0])


def _closing(frame: re.Match[str], source: str, end: int) -> re.Match[str] | None:
    """The other half of a frame. A fence may lack it, a tag may not."""
    if not frame["tag"]:
        return _FENCE_AFTER.match(source, end) or re.compile("").match(source, end)
    return re.compile(rf"\s*<\|?/{re.escape(frame['tag'])}\|?>").match(source, end)
