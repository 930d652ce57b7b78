"""Whether the text stands inside of a call that the model writes as text.

What a call carries is a file as often as not, and files repeat by nature: the limits for arguments hold there (see
`argument_limits`), the same as for native calls. A call begins with an opener of the table of call formats, and ends
with a closer; where a line begins with JSON, all of that line is taken for one. The place decides only how much
repetition is too much, so a wrong guess costs characters, never a verdict.
"""

from __future__ import annotations

import re

from reliability.tools.format_row import Reader
from reliability.tools.formats import CALL_FORMATS

__all__ = ["HEAD_CHARS", "begins_call", "update_place"]

HEAD_CHARS = 80  # of a line, by which it is told what it is
DELIMITER_CHARS = 64  # no delimiter of the table is longer
_TAGGED = [row for row in CALL_FORMATS if row.reader in (Reader.ENVELOPE, Reader.ELEMENTS, Reader.MESSAGES)]
_OPENERS = [opener for row in _TAGGED for opener in row.compared or row.opens]
_CLOSERS = [closer for row in _TAGGED for closer in row.closes]
_DELIMITER = re.compile(f"(?P<opens>{'|'.join(_OPENERS)})|{'|'.join(_CLOSERS)}", re.IGNORECASE)
_HEAD = re.compile(r"""[ \t>]*(?:Action(?: Input)?:[ \t]*)?(?:[\[{]|"[\w -]{1,60}"\s*:)""", re.IGNORECASE)


def update_place(inside: bool, tail: str, new: int) -> bool:
    """Return whether the text that ends in `tail` is inside of a call; the last `new` characters weren't seen yet."""
    text = tail[-new - DELIMITER_CHARS :]
    if "<" not in text and "TOOL" not in text.upper():
        return inside  # there is no delimiter without one of them
    begin = len(text) - new
    for delimiter in _DELIMITER.finditer(text):
        if delimiter.end() >= begin:  # one may be known by what follows it
            inside = delimiter["opens"] is not None
    return inside


def begins_call(head: str) -> bool:
    """Return whether a line that begins so may be a call, or a piece of one."""
    return _HEAD.match(head) is not None
