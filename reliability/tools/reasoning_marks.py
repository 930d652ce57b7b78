"""Whether a mark of reasoning that stands in a text is used, or talked about (`format_reasoning.py` has the rules)."""

from __future__ import annotations

import re
from functools import cache

from reliability.tools.delimiters import INDENT_MAX, begins_sentence, compile_any, is_quoted
from reliability.tools.format_reasoning import REASONING, Thought
from reliability.tools.turns import stands_in_code

__all__ = ["compile_ends", "ends_reasoning", "find_row", "is_said_of", "is_unsettled", "is_used", "opens_reasoning"]

STRING_CHARS = 4_096  # of what stands before a mark, looked through for the quote that begins a string
ESCAPED_MAX = 64  # quotes in it that are escaped, as they are in data alone
_BEHIND_A_MENTION = (" ", "\t", ",", ".", ";", ":", ")")
_OPENERS = tuple((row, compile_any(row.opens)) for row in REASONING if row.opens)
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_SAID = re.compile(
    r"[ \t]{1,4}(?:is|are|was|were|means?|marks?|opens?|begins?|starts?|stands?|closes?|ends?|tags?|tokens?|and|or)\b"
)
_UNSETTLED = re.compile(r"\n?\Z|[ \t]{1,4}[a-z]{0,6}\Z")
_STRING_BEGINS = re.compile(r"[:,{\[(=]\s{0,8}\Z")
_STRING_ENDS = re.compile(r"\s{0,8}[,:}\])]")


def find_row(text: str, at: int) -> Thought | None:
    """Find the row whose opener stands here."""
    return next((row for row, opener in _OPENERS if opener.match(text, at)), None)


@cache
def compile_ends(row: Thought) -> re.Pattern[str]:
    """Compile what ends the reasoning that an opener of this row has begun."""
    return compile_any((*row.closes, *row.until))


def opens_reasoning(text: str, start: int, end: int) -> bool:
    """Return whether reasoning begins at an opener that stands here, and leaves the answer."""
    if not begins_sentence(text, start) or is_quoted(text, start, end) or _stands_in_data(text, start):
        return False
    in_line = text[max(0, start - INDENT_MAX) : start].rstrip(" \t\r")[-1:] not in ("", "\n")
    return not is_said_of(text, end) and not (in_line and text[end : end + 1] in ("", *_BEHIND_A_MENTION))


def ends_reasoning(text: str, start: int, end: int) -> bool:
    """Return whether a closer that stands here, behind an opener, ends reasoning."""
    if is_quoted(text, start, end) and not _closes_block(text, start):
        return False
    apart = text[max(0, start - 1) : start] in (" ", "\t") and text[end : end + 1] in _BEHIND_A_MENTION
    return not apart or begins_sentence(text, start)


def _closes_block(text: str, at: int) -> bool:
    """Return whether the line before a place is the fence that closes a code block: its ticks quote nothing."""
    least = max(0, at - INDENT_MAX)
    line = text[max(text.rfind("\n", least, at) + 1, least) : at].strip()
    return len(line) > 2 and not line.strip("`")


def is_used(text: str, start: int, end: int) -> bool:
    """Return whether a mark that no opener stands before is used here: a closer, or a mark of the answer."""
    if not ends_reasoning(text, start, end) or is_said_of(text, end) or _stands_in_data(text, start):
        return False
    before, behind = text[max(0, start - 1) : start], text[end : end + 2]
    if before in (" ", "\t") and not begins_sentence(text, start):
        return behind == "\n\n" or behind[:1] not in ("", "\n")
    return not (before in _BRACKETS and behind[:1] in _BRACKETS.get(before, ()))


def is_said_of(text: str, end: int) -> bool:
    """Return whether a sentence says something of the mark that ends here."""
    return _SAID.match(text, end) is not None


def is_unsettled(text: str, end: int) -> bool:
    """Return whether a text ends too early behind a mark to tell whether that is talked about."""
    return _UNSETTLED.match(text, end) is not None


def _stands_in_data(text: str, at: int) -> bool:
    """Return whether a place stands in inline code, or in a string of data."""
    return stands_in_code(text, at) or _stands_in_string(text, at)


def _stands_in_string(text: str, at: int) -> bool:
    """Return whether the last quote before a place begins a string, as far as what stands beside it tells."""
    quote, escaped = text.rfind('"', max(0, at - STRING_CHARS), at), 0
    while quote > 0 and text[quote - 1] == "\\" and escaped < ESCAPED_MAX:
        quote, escaped = text.rfind('"', max(0, at - STRING_CHARS), quote), escaped + 1
    if quote < 0 or escaped == ESCAPED_MAX:
        return escaped == ESCAPED_MAX
    behind, before = _STRING_ENDS.match(text, quote + 1, at), _STRING_BEGINS.search(text, max(0, quote - 9), quote)
    return behind is None and before is not None
