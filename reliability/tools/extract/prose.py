"""The prose of an answer: what is left of it when its calls are taken out.

Only what framed a call goes: the fence or the tag around it, the white space behind it that stands before it as well,
and the commas or semicolons between two calls. What has left for the client already is not given back.

Law: what has left, and what is left then, is the text of a complete answer. So the prose before the first call keeps
all its white space.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reliability.tools.formats import FRAME_FENCE, FRAME_TAG

_FRAME_BEFORE = re.compile(rf"(?:{FRAME_FENCE}|(?P<tag>{FRAME_TAG}))\s*\Z")
_FENCE = re.compile(r"`{3,}")
_LATE_CLOSE = re.compile(r"\s*`{3,}[ \t]*(?=\r?\n|\Z)")
_ONLY_SEPARATORS = re.compile(r"(?:[\s,;\\]|\b(?:and|then|also)\b)*+\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of prose with its place in the text. `joint`: the white space between it and the piece before a call."""

    at: int
    text: str
    joint: str = ""


def _build_joint(before: str, blank: str) -> str:
    """Build what is missing between two pieces of prose when the call between them goes: the line breaks on either
    side, and the indentation of the second. `blank`: the white space behind the call."""
    kept = before[len(before.rstrip()) :]
    if "\n" not in blank:
        return "" if kept else blank or "\n"
    indented, indent = kept.rpartition("\n")[2], blank.rpartition("\n")[2]
    if "\n" in kept and indented == indent:
        indented = indent = ""
    missing = max(blank.count("\n") - kept.count("\n"), 1 if indented else 0)
    return "\n" * missing + indent


class Prose:
    """Pieces of prose, and the calls between them. `sent`: how much has left; `told`: what left before this text."""

    def __init__(self, sent: int, told: str) -> None:
        self.sent, self.told = sent, told
        self._pieces: list[_Piece] = []
        self._first_call: int | None = None
        self._after_call = False
        self._behind_mark = False
        self._framed = False  # in a fence that was opened before calls and hasn't been closed
        self._fences = 0  # how many have opened or closed a code block

    def add(self, text: str, at: int) -> None:
        """Take the prose that stands next, at this place."""
        if self._after_call and self._framed and (close := _LATE_CLOSE.match(text)):
            at, text, self._framed = at + close.end(), text[close.end() :], False
        joint = ""
        if self._after_call or self._behind_mark:
            given, text = text, text.lstrip()
            blank = given[: len(given) - len(text)]
            at += len(blank)
            before = self._pieces[-1].text if self._pieces else self.told
            joint = _build_joint(before, blank) if self._after_call and before else ""
        if text:
            self._pieces.append(_Piece(at, text, joint))
            self._fences += text.count("```") and len(_FENCE.findall(text))
            self._after_call = self._behind_mark = False

    def add_call(self, source: str, end: int) -> int:
        """Take the call that ends here; return the place behind the frame that was opened before it."""
        last = self._pieces.pop() if self._pieces and not self._after_call else _Piece(0, "")
        kept = last.text
        frame = _FRAME_BEFORE.search(kept, max(0, len(kept) - 64))
        if frame and not frame["tag"] and self._fences % 2 == 0:
            frame = None  # it closes a code block before the call
        close = _find_closing(frame, source, end) if frame else None
        if frame and close:
            kept, end = kept[: frame.start()], close.end()
            self._fences -= not frame["tag"]
            self._framed = not frame["tag"] and not close[0]
        between = self._first_call is not None and _ONLY_SEPARATORS.match(kept)
        if not between and (self._pieces or kept.strip()):
            self._pieces.append(replace(last, text=kept))
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
        behind = [] if self._first_call is None else self._pieces[self._first_call :]
        return self.before() + self._join_unsent(behind).rstrip()

    def before(self) -> str:
        """Return the prose in front of the first call that hasn't left yet."""
        return self._join_unsent(self._pieces[: self._first_call])

    def _join_unsent(self, pieces: Sequence[_Piece]) -> str:
        unsent = [piece for piece in pieces if piece.at + len(piece.text) > self.sent]
        return "".join(
            piece.joint + piece.text if piece.at >= self.sent else piece.text[self.sent - piece.at :]
            for piece in unsent
        )


def _find_closing(frame: re.Match[str], source: str, end: int) -> re.Match[str] | None:
    """Find the other half of a frame. A fence may lack it, a tag may not; glued to it the next one may be opened."""
    if not frame["tag"]:
        ticks = len(frame[0]) - len(frame[0].lstrip("`"))
        return re.compile(rf"(?:\s*(?:`{{{ticks}}}(?=`{{3,}}\s*+\S)|`{{3,}}))?").match(source, end)
    name = re.escape(frame["tag"].strip("<|>"))
    return re.compile(rf"\s*<\|?/{name}\|?>").match(source, end)
