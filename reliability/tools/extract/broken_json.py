"""JSON that can't be read: whether a call was meant by it.

The reader of JSON has failed there, so only words and brackets are looked at: a declared name under a key that names
tools, and a key that holds arguments.
"""

from __future__ import annotations

import re

from reliability.tools.delimiters import OPENER
from reliability.tools.extract.shapes import ARGUMENT_KEYS, NAME_KEYS
from reliability.tools.format_parts import NAME
from reliability.tools.schema.toolbox import ToolBox

__all__ = ["looks_like_a_call", "names_a_tool"]

WINDOW_CHARS_MAX = 400

_NAMED_KEY = re.compile(rf"\b(?:{'|'.join(NAME_KEYS)})\b[\"'}}\]]?\s{{0,8}}:?\s{{0,8}}[\"']?({NAME})")
_ARGUMENT_KEY = re.compile(rf"\b(?:{'|'.join(ARGUMENT_KEYS)})\b[\"'}}\]]?\s{{0,8}}:")
_BRACKET = re.compile(r"[{}\[\]]")
_JSON_BEGINS = re.compile(r"\{\s{0,64}(?:\"[^\"\n]{0,128}\"|'[^'\n]{0,128}'|\w{1,128})\s{0,64}[\"':]|\[\s{0,64}[\[{]")


def looks_like_a_call(text: str, start: int, box: ToolBox) -> bool:
    """Return whether a declared name stands under a name's key, next to an arguments' key or to the
    end of the text, in what begins as JSON does and before the bracket closes."""
    if not _JSON_BEGINS.match(text, start):
        return False
    window = _cut_window(text, start)
    near_end = start + WINDOW_CHARS_MAX >= len(text)
    return names_a_tool(window, 0, box) and (_ARGUMENT_KEY.search(window) is not None or near_end)


def names_a_tool(text: str, start: int, box: ToolBox) -> bool:
    """Return whether a declared name stands under a name's key, from `start` on."""
    return any(box.find(name) is not None for name in _NAMED_KEY.findall(text, start))


def _cut_window(text: str, start: int) -> str:
    """Return the text behind a bracket: up to where it seems to close, or another call is opened,
    and not far."""
    window = text[start : start + WINDOW_CHARS_MAX]
    opener = OPENER.search(window)
    window = window[: opener.start()] if opener else window
    depth = 0
    for bracket in _BRACKET.finditer(window):
        depth += 1 if bracket[0] in "{[" else -1
        if depth == 0:
            return window[: bracket.end()]
    return window
