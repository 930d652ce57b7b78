"""The expressions of the table of call formats, compiled: what opens, what closes, and what may still become that.

All expressions are possessive or bounded, so that scanning stays linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from reliability.tools.format_reasoning import REASONING_CLOSES, REASONING_OPENS
from reliability.tools.format_row import Place, Reader, Until
from reliability.tools.formats import CALL_FORMATS, INNER_CLOSES, SPEECH_ENDS

__all__ = [
    "BLANK",
    "CLOSER",
    "ENDLESS",
    "FENCE",
    "INDENT_MAX",
    "INNER_CLOSERS",
    "OPENER",
    "QUOTES",
    "REASONING_CLOSE",
    "REASONING_OPEN",
    "SENTENCE_ENDS",
    "SPEECH_END",
    "START_MARKER",
    "beginnings",
    "begins_sentence",
    "compile_any",
    "compile_closers",
    "has_only_delimiters",
    "is_quoted",
]

_ENVELOPES = [row for row in CALL_FORMATS if row.reader is Reader.ENVELOPE]
_PIECE = re.compile(r"(?P<one>\[[^\]]+\]|\\?.)(?P<times>\{(?P<least>\d+)(?:,\d+)?\}|\?)?", re.DOTALL)


def compile_any(patterns: Iterable[str]) -> re.Pattern[str]:
    """Compile the alternatives into one expression, without case."""
    return re.compile("|".join(patterns), re.IGNORECASE)


def beginnings(pattern: str, *, complete: bool = True) -> str:
    """Turn a row of single characters and sets into the expression of every beginning of it that a text ends with, and
    of the whole row where `complete`."""
    found = "" if complete else "(?!)"
    for piece in reversed(list(_PIECE.finditer(pattern))):
        less = int(piece["least"] or 1) - 1
        some = f"{piece['one']}{{0,{less}}}" if less > 0 else ""
        found = rf"(?:{some}\Z|{piece[0]}{found})"
    return found


def compile_closers(reader: Reader) -> re.Pattern[str]:
    """Compile what ends the calls that a reader reads."""
    return re.compile("|".join(closer for row in CALL_FORMATS if row.reader is reader for closer in row.closes))


OPENER = compile_any(opener for row in _ENVELOPES for opener in row.opens)
CLOSER = compile_any([*(closer for row in _ENVELOPES for closer in row.closes), *SPEECH_ENDS])
ENDLESS = compile_any(opener for row in _ENVELOPES if row.endless for opener in row.opens)
SPEECH_END = compile_any(SPEECH_ENDS)
INNER_CLOSERS = re.compile(rf"(?:(?:{'|'.join(INNER_CLOSES)})\s*+)+", re.IGNORECASE)
REASONING_OPEN = compile_any(REASONING_OPENS)
REASONING_CLOSE = compile_any(REASONING_CLOSES)
START_MARKER = compile_any(
    start.head
    for row in CALL_FORMATS
    for start in row.starts
    if start.tail is None and start.until is Until.ASKED and start.place is Place.ANYWHERE
)
SENTENCE_ENDS = "\n.!?:>"
INDENT_MAX = 256
QUOTES = "`\"'"
BLANK = re.compile(r"\s*+")
FENCE = re.compile(r"`{3,}+[\w-]{0,32}+")
_ONLY_DELIMITERS = re.compile(rf"(?:{OPENER.pattern}|{CLOSER.pattern}|\s)*+", re.IGNORECASE)


def begins_sentence(text: str, at: int) -> bool:
    """Return whether a line or a sentence begins here, white space aside."""
    before = text[max(0, at - INDENT_MAX) : at].rstrip(" \t\r")
    return not before or before[-1] in SENTENCE_ENDS


def is_quoted(text: str, start: int, end: int) -> bool:
    """Return whether a delimiter is only talked about: it stands between two equal quotes."""
    return start > 0 and end < len(text) and text[start - 1] in QUOTES and text[end] == text[start - 1]


def has_only_delimiters(text: str) -> bool:
    """Return whether nothing stands in a text but delimiters and white space."""
    return _ONLY_DELIMITERS.fullmatch(text) is not None
