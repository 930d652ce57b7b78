"""ONE table of the formats in which models write their calls as text: a row per family, and its expressions, compiled.

    examples  a call of `search` with {"query": "x"}, as the family writes it, in each of its forms
    opens     regular expressions of what says that a call begins; how it is read follows from `reader`
    closes    what ends it
    holds     what the gate holds until it is known whether it opens a call (`Start`); None: `opens`, as they are
    reader    which reader of `extract/` reads it; None: it is only known as a repetition
    place     where `opens` counts: anywhere, or only where a line begins
    named     `opens` stands behind a name: `search[ARGS]{...}`
    explicit  `opens` says by itself that this is a call; where it doesn't, only a declared name does
    endless   no `closes` is missed at the end
    compared  what begins a call that the loop check compares with the others of the same answer
    writes    the opener and the closer with which this server writes a call itself

Any opener of an *envelope* (`format_envelopes.py`) goes with any closer. Of two rows of one `place` that open at the
same spot, extraction takes the first. Held expressions are rows of single characters and sets, each with at most a `?`
or `{n,m}` behind it, so that `beginnings` can say of a cut text whether it may still become one; white space and names
are bounded, all else is possessive or bounded: scanning stays linear. Delimiters are compared without case, words to
the letter.

Invariants: a streamed answer and the complete one have the same calls, and no part of a call leaves as text. So a word
that begins a call belongs to it only where a line or a sentence begins (`Place`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from reliability.tools.format_envelopes import ENVELOPES
from reliability.tools.format_notations import NOTATIONS
from reliability.tools.format_row import DSML, Format, Place, Reader, Until

CALL_FORMATS: tuple[Format, ...] = (*ENVELOPES, *NOTATIONS)

# What may frame a call without being a delimiter: a code fence, or any tag that is closed behind it.
FRAME_FENCE = r"`{3,8}[\w+.#-]{0,32}"
FRAME_TAG = r"<\|?[A-Za-z][\w:-]{0,40}\|?>"
# What closes a part of a call: with nothing like a call before it, it is lost.
INNER_CLOSES = tuple(
    rf"</{space}{name}>"
    for space in ("", r"\w{1,32}:", DSML)
    for name in ("parameter", "param", "function", "invoke", "arg_key", "arg_value")
)
# What ends whatever a model says, a call or not.
_SPEECH_ENDS = (r"<\|call\|>", r"<\|eom_id\|>", r"<\|eot_id\|>", r"<\|im_end\|>", r"<\|end\|>", r"<\|return\|>")


_ENVELOPES = [row for row in CALL_FORMATS if row.reader is Reader.ENVELOPE]
_PIECE = re.compile(r"(?P<one>\[[^\]]+\]|\\?.)(?P<times>\{(?P<least>\d+)(?:,\d+)?\}|\?)?", re.DOTALL)
INNER_CLOSERS = re.compile(rf"(?:(?:{'|'.join(INNER_CLOSES)})\s*+)+", re.IGNORECASE)
SENTENCE_ENDS = "\n.!?:>"
INDENT_MAX = 256
QUOTES = "`\"'"
BLANK = re.compile(r"\s*+")
FENCE = re.compile(r"`{3,}+[\w-]{0,32}+")


def compile_any(patterns: Iterable[str]) -> re.Pattern[str]:
    """Compile the alternatives into one expression, without case; of none it is one that matches nothing."""
    return re.compile("|".join(patterns) or "(?!)", re.IGNORECASE)


def beginnings(pattern: str, *, complete: bool = True) -> str:
    """Turn a row of single characters and sets into the expression of its beginnings at the end of a text; of the whole
    too where `complete`."""
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
CLOSER = compile_any([*(closer for row in _ENVELOPES for closer in row.closes), *_SPEECH_ENDS])
ENDLESS = compile_any(opener for row in _ENVELOPES if row.endless for opener in row.opens)
SPEECH_END = compile_any(_SPEECH_ENDS)
START_MARKER = compile_any(
    start.head
    for row in CALL_FORMATS
    for start in row.starts
    if start.tail is None and start.until is Until.ASKED and start.place is Place.ANYWHERE
)
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
