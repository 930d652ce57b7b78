"""Where a call begins in a text, by the table of call formats: found by the signs that openers have.

One pattern of all openers, tried at every character, is eight times slower. So openers that begin with a sign are tried
where such a sign stands, those of a name and a sign before it, and those that begin with a word where the word stands.
(RE2 was tried: it reads the whole text at each search, and refuses half a character.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from reliability.tools.formats import CALL_FORMATS

#: The rows whose calls are compared within an answer.
ROWS = [row for row in CALL_FORMATS if row.compared]
NAME_CHARS = 49
_NAME = r"[A-Za-z_][\w.:-]{0,48}"
_SIGNS = ("<", r"\[", r"\]", "⏺", "✿")
#: A sign and the character that stands behind it in every opener.
_SIGN = re.compile(r"<(?=[\w|｜])|\[(?=[TACtac])|\](?=<)|⏺|✿")
_NAME_BEHIND = re.compile(r"[\w.:-]{1,49}\Z")
_WORD = re.compile(r"[A-Za-z=/> -]+")


def _list_openers() -> Iterator[tuple[int, str]]:
    for at, row in enumerate(ROWS):
        for opener in row.compared:
            yield at, opener


def _compile(openers: list[tuple[int, str]]) -> re.Pattern[str]:
    """Compile a pattern whose groups tell the row: `r3_0`."""
    groups = (f"(?P<r{at}_{number}>{opener})" for number, (at, opener) in enumerate(openers))
    return re.compile("|".join(groups) or r"(?!)", re.IGNORECASE)


_NAMED = [(at, opener) for at, opener in _list_openers() if opener.startswith(_NAME)]
_SIGNED = [(at, opener) for at, opener in _list_openers() if opener.startswith(_SIGNS)]
_WORDED = [each for each in _list_openers() if each not in _NAMED and each not in _SIGNED]
_AT_SIGN, _AT_NAME, _AT_WORD = _compile(_SIGNED), _compile(_NAMED), _compile(_WORDED)
_BEHIND_NAME = _compile([(at, opener.removeprefix(_NAME)) for at, opener in _NAMED])


def _read_head(opener: str) -> str:
    """Return the letters that a worded opener begins with; every one has some."""
    head = _WORD.match(opener)
    if head is None:
        raise ValueError(f"the table has an opener that begins neither with a sign nor with a word: {opener}")
    return head[0].lower()


_HEADS = tuple(sorted({_read_head(opener) for _, opener in _WORDED}))
HEAD_CHARS = max(map(len, _HEADS))


def find_opener(text: str, at: int) -> re.Match[str] | None:
    """Find the first opener from `at` on."""
    signed = _find_at_sign(text, at)
    worded = _find_at_word(text, at, len(text) if signed is None else signed.start())
    found = [match for match in (signed, worded) if match is not None]
    return min(found, key=lambda match: (match.start(), row_of(match)), default=None)


def row_of(opener: re.Match[str]) -> int:
    """Return the place in `ROWS` of the row that an opener is of."""
    return int((opener.lastgroup or "r0_0")[1:].partition("_")[0])


def _find_at_sign(text: str, at: int) -> re.Match[str] | None:
    for sign in _SIGN.finditer(text, at):
        place = sign.start()
        if _BEHIND_NAME.match(text, place) and (name := _find_name(text, at, place)) is not None:
            return name
        if opener := _AT_SIGN.match(text, place):
            return opener
    return None


def _find_name(text: str, at: int, end: int) -> re.Match[str] | None:
    """Find the opener whose name ends here, from its first letter on."""
    name = _NAME_BEHIND.search(text[max(at, end - NAME_CHARS) : end])
    if name is None:
        return None
    matches = (_AT_NAME.match(text, end - size) for size in range(len(name[0]), 0, -1))
    return next((match for match in matches if match is not None), None)


def _find_at_word(text: str, at: int, last: int) -> re.Match[str] | None:
    """Find the first opener that begins with a word, not behind `last`."""
    part = text[at : last + HEAD_CHARS]
    lowered = part.lower()
    if len(lowered) != len(part):  # some letters are two in lower case
        lowered = part
    places = {head: place for head in _HEADS if (place := lowered.find(head)) >= 0}
    while places:
        head = min(places, key=places.__getitem__)
        place = places.pop(head)
        if at + place > last:
            return None
        if opener := _AT_WORD.match(text, at + place):
            return opener
        if (following := lowered.find(head, place + 1)) >= 0:
            places[head] = following
    return None
