"""Where in a complete text a call may begin: the delimiters of the table of call formats, from left to right.

`SPOT` finds the places that are worth a look, fast. A word in the middle of a sentence begins no call: where the answer
is streamed it has left by then (`Place`), and a complete answer says the same as a streamed one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from reliability.tools.extract.harmony import HEADER_MARKS
from reliability.tools.format_reasoning import ANSWER_MARKS, REASONING_CLOSES, REASONING_OPENS
from reliability.tools.format_row import NAME, Format, Place, Reader
from reliability.tools.formats import CALL_FORMATS, CLOSER, begins_sentence
from reliability.tools.turns import MARKS

_NAME_CHARS, _HEAD_CHARS = 136, 400  # of a name before a delimiter, and of words before the bracket of a call
_WHOLE_WORD = r"(?<![\w.:/-])"
_READ = [row for row in CALL_FORMATS if row.opens and row.reader not in (None, Reader.MESSAGES)]


@dataclass(frozen=True, slots=True)
class Delimiter:
    """Where a delimiter begins (with the name before it), where it ends, and its row. `kind`: the row's reader,
    `close`, `think`, `thought` (its end), `says` (a mark of the answer) or `turn`. `held`: where the call's own text
    begins."""

    kind: Reader | str
    start: int
    end: int
    held: int
    row: Format | None = None


def _guard_word(row: Format, opener: str) -> str:
    """Let a word begin a call only as a whole word; behind a point it is a part of a longer name."""
    if not opener[0].isalpha():
        return opener
    return rf"\b{opener}" if row.reader in (Reader.ENVELOPE, Reader.CHANNEL) else f"{_WHOLE_WORD}{opener}"


def _build_groups(rows: list[Format]) -> list[str]:
    return [f"(?P<r{_READ.index(row)}>{'|'.join(_guard_word(row, opener) for opener in row.opens)})" for row in rows]


_ANYWHERE = [row for row in _READ if row.place is Place.ANYWHERE]
_ENVELOPES = _build_groups([row for row in _ANYWHERE if row.reader is Reader.ENVELOPE])
_OTHERS = _build_groups([row for row in _ANYWHERE if row.reader is not Reader.ENVELOPE])
_WORDS = tuple(
    word[0]
    for row in _ANYWHERE
    for opener in row.opens
    if (word := re.match(r"(?:-> )?[A-Za-z][A-Za-z ]*", opener)) is not None
)

_REASONING = [
    f"(?P<thought>{'|'.join(REASONING_CLOSES)})",  # `<|END_THINKING|>` and closers are no openers with a namespace
    f"(?P<think>{'|'.join(REASONING_OPENS)})",
    f"(?P<says>{'|'.join(ANSWER_MARKS)})",
    rf"(?=[<\[\]])(?P<turn>{'|'.join((*MARKS, HEADER_MARKS))})",  # few places are worth the long row
]
SPOT = re.compile(r"[<\[{\n=:.✿◁]|>(?=>>)|\](?=<\]minimax|~)|(?<=-> tool)/|&(?=lt;)")
_DELIMITER = re.compile("|".join([*_REASONING, f"(?P<close>{CLOSER.pattern})", *_ENVELOPES, *_OTHERS]), re.I)
_LINE = re.compile("|".join(_build_groups([row for row in _READ if row.place is Place.LINE])))
_BRACKET = re.compile(r"[<\[{]")
_NO_ARGUMENTS = re.compile(r"\{\s{0,64}\}")
_NAME_BEFORE = re.compile(rf"{_WHOLE_WORD}{NAME}\s{{0,8}}\Z")


def find_delimiter_at(text: str, at: int, kept: int) -> Delimiter | None:
    """Find the delimiter whose first sign stands at this place; `kept`: what stands before is settled."""
    start = _find_word_before(text, at, kept)
    match = _DELIMITER.match(text, start)
    if match is None and start < at:
        start, match = at, _DELIMITER.match(text, at)
    if match is None:
        return None
    delimiter = _build_delimiter(match)
    if delimiter.row is not None and delimiter.row.named:
        name = _NAME_BEFORE.search(text, max(kept, at - _NAME_CHARS), at)
        if name is None:
            return None
        start = name.start()
    if start in (at, kept) or begins_sentence(text, start):
        return replace(delimiter, start=start, held=start)
    sign = _BRACKET.search(text, at, at + _HEAD_CHARS)
    if sign and ("\n" in text[at : sign.start()] or _NO_ARGUMENTS.match(text, sign.start())):
        return None  # in a stream nothing of it is held
    return replace(delimiter, start=start, held=sign.start() if sign else at)


def _find_word_before(text: str, at: int, kept: int) -> int:
    """Find the place of the longest word before a sign that may begin a call together with it."""
    if not text.endswith(_WORDS, kept, at):
        return at
    return at - max(len(word) for word in _WORDS if text.endswith(word, kept, at))


def find_delimiter_in_line(text: str, at: int) -> Delimiter | None:
    """Find the delimiter with which the line begins that begins here."""
    match = _LINE.match(text, at)
    return None if match is None else _build_delimiter(match)


def _build_delimiter(match: re.Match[str]) -> Delimiter:
    group = match.lastgroup or ""
    if group in ("think", "thought", "says", "turn", "close"):
        return Delimiter(group, match.start(), match.end(), match.start())
    row = _READ[int(group[1:])]
    return Delimiter(row.reader or "", match.start(), match.end(), match.start(), row)
