"""The prose of an answer while calls are taken out of it.

Prose is kept to the letter. Only what framed a call goes: the white space next to it, the fence or the tag around it,
and the commas or semicolons between two calls. What has left for the client already is not given back.
"""

from __future__ import annotations

import re

from reliability.tools.formats import FRAME_FENCE, FRAME_TAG

__all__ = ["Prose"]

_FRAME_BEFORE = re.compile(rf"(?:{FRAME_FENCE}|(?P<tag>{FRAME_TAG}))\s*\Z")
_FENCE = re.compile(r"`{3,}")
_FENCE_AFTER = re.compile(r"\s*`{3,}")
_LATE_CLOSE = re.compile(r"\s*`{3,}[ \t]*(?=\r?\n|\Z)")
_ONLY_SEPARATORS = re.compile(r"(?:[\s,;\\]|\b(?:and|then|also)\b)*+\Z", re.IGNORECASE)


class Prose:
    """Pieces of prose with their places in the text, and the places of the calls between them. `sent`: how much of the
    text has left already."""

    def __init__(self, sent: int = 0) -> None:
        self.sent = sent
        self._pieces: list[tuple[int, str]] = []
        self._first_call: int | None = None
        self._after_call = False
        self._behind_mark = False
        self._framed = False  # in a fence that was opened before calls and hasn't been closed
        self._fences = 0  # how many have opened or closed a code block

    def add(self, text: str, at: int) -> None:
        """Take the prose that stands next, at this place."""
        if self._after_call and self._framed and (close := _LATE_CLOSE.match(text)):
            at, text, self._framed = at + close.end(), text[close.end() :], False
        if self._after_call or self._behind_mark:
            given, text = text, text.lstrip()
            at += len(given) - len(text)
        if text:
            self._pieces.append((at, text))
            self._fences += text.count("```") and len(_FENCE.findall(text))
            self._after_call = self._behind_mark = False

    def add_call(self, source: str, end: int) -> int:
        """Take the call that stands next, and ends here; return the place behind the frame that was
        opened before it."""
        at, last = self._pieces.pop() if self._pieces and not self._after_call else (0, "")
        kept = last.rstrip()
        frame = _FRAME_BEFORE.search(last, max(0, len(last) - 64))
        if frame and not frame["tag"] and self._fences % 2 == 0:
            frame = None  # it closes a code block before the call
        close = _find_closing(frame, source, end) if frame else None
        if frame and close:
            kept, end = last[: frame.start()].rstrip(), close.end()
            self._fences -= not frame["tag"]
            self._framed = not frame["tag"] and not close[0]
        if self._first_call is not None and _ONLY_SEPARATORS.match(kept):
            kept = ""
        if kept:
            self._pieces.append((at, kept))
        if self._first_call is None:
            self._first_call = len(self._pieces)
        self._after_call = True
        return end

    def skip(self) -> None:
        """Leave out a mark that stands next, with the white space behind it."""
        self._behind_mark = True

    def forget(self) -> None:
        """Begin anew: what was taken for calls was none."""
        self._pieces, self._first_call, self._after_call, self._fences = [], None, False, 0
        self._framed = False

    def text(self) -> str:
        """Return all prose that hasn't left yet."""
        pieces = self._cut_sent(len(self._pieces))
        return "\n".join(pieces).strip() if self._first_call is not None else "".join(pieces)

    def before(self) -> str:
        """Return the prose in front of the first call."""
        return "\n".join(self._cut_sent(self._first_call or 0))

    def _cut_sent(self, count: int) -> list[str]:
        pieces = [piece[max(0, self.sent - at) :] for at, piece in self._pieces[:count]]
        return [piece for piece in pieces if piece]


def _find_closing(frame: re.Match[str], source: str, end: int) -> re.Match[str] | None:
    """Find the other half of a frame. A fence may lack it, a tag may not."""
    if not frame["tag"]:
        return _FENCE_AFTER.match(source, end) or re.compile("").match(source, end)
    name = re.escape(frame["tag"].strip("<|>"))
    return re.compile(rf"\s*<\|?/{name}\|?>").match(source, end)
