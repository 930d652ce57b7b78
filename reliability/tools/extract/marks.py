"""What shows that the frame of a value is damaged: marks of its own format are left in it, in its key, or behind it.

A model that misspells a closing tag, or closes a brace too early, means a call; but a part of the frame would be taken
for a part of the value, or a part of the value for prose. Such a call is refused, never guessed at. A value whose frame
is whole is not looked at: it may hold whatever it likes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rapidfuzz import fuzz

TAIL_CHARS = 64
MARK_CHARS = 16  # from the first sign of a closing tag to its name
NEARLY = 80  # percent of two words that must be alike for one to be meant by the other

_CLOSING_WORDS = ("parameter", "parameters", "param", "function", "invoke")
_LAST_WORD = re.compile(r"(?P<word>[A-Za-z_][\w.-]{2,})(?:\s*=[\s\"']*[\w.-]+)?\W*\Z")
_SIGNS = re.compile(r"[<>\[\]]")
_CUT = re.compile(r"<\s*[/\\]?\s*\Z")
_EDGE = re.compile(r"[\s\"',:;=/\\|<>(){}\[\]]")
_LONE_OPEN = re.compile(r"[<>=/|\"']{1,2}[ \t]*\r?\n")
_LONE_CLOSE = re.compile(r"\n[ \t]*<{1,2}[ \t]*\Z")
_REST = re.compile(r"(?:[ \t]*|\s*[,}\]][\s,}\]]*)[\"']?[\w$.-]{1,64}[\"']\s{0,8}:")


def ends_like_a_closer(text: str, key: str) -> bool:
    """Return whether a parameter's text, whose closing tag is missing, ends with what was meant to be that tag: the
    name of one, or of the parameter, next to a sign of tags."""
    tail = text[-TAIL_CHARS:].rstrip()
    last = _LAST_WORD.search(tail)
    if last is None or _SIGNS.search(tail, max(0, last.start() - MARK_CHARS)) is None:
        return _CUT.search(tail) is not None
    return _CUT.search(tail) is not None or _is_like(last["word"], (*_CLOSING_WORDS, key))


def _is_like(word: str, names: Iterable[str]) -> bool:
    return any(fuzz.ratio(word.lower(), name.lower()) >= NEARLY for name in names)


def holds_lone_signs(text: str) -> bool:
    """Return whether a sign too many of the opening tag stands on its line, or one of the closing tag on a line of its
    own, around a text that the template writes on lines of its own."""
    return _LONE_OPEN.match(text) is not None or _LONE_CLOSE.search(text[-TAIL_CHARS:]) is not None


def is_damaged_key(key: str) -> bool:
    """Return whether a key that no tool declares begins or ends with a sign of its frame."""
    return _EDGE.match(key[:1]) is not None or _EDGE.match(key[-1:]) is not None


def goes_on_behind(text: str, at: int) -> bool:
    """Return whether another key stands right behind an object: it was closed too early."""
    return _REST.match(text, at) is not None
