"""A delimiter without a call: whether one was meant by it, or prose talks of it.

    meant       <tool_call> at the end of an answer, or in a line of its own; with the name of a declared tool, or with
                arguments, behind it; with a closer behind it, where a sentence begins
    talked of   "A call begins with <tool_call> and ends with </tool_call>.", in all other places

A closer is meant behind something that looks like a call. Where a sentence would begin, or glued to the last word, it
is lost: it closes nothing, and is dropped.
"""

from __future__ import annotations

import re

from reliability.tools.delimiters import begins_sentence, has_only_delimiters
from reliability.tools.extract.envelope import find_delimiter, is_closer_next
from reliability.tools.format_parts import NAME
from reliability.tools.schema.toolbox import ToolBox

__all__ = ["is_closer_lost", "is_closer_meant", "is_opener_meant", "is_tag_meant"]

NEAR_CHARS = 400

_ARGUMENTS = re.compile(r"[{}=]|\w\(")
_WORD = re.compile(NAME)
_JOINT = re.compile(r"[\s,;:/&.…`'\"-]*(?:(?:and|or|to|with|und|et)[\s,;:/&.…`'\"-]*|(?:\.\.\.|…)\s*)")
_LINE_ENDS = re.compile(r"[ \t\r]*(?:\n(?![ \t]*`{3})|\Z)")

_TAG = re.compile(rf"<function=\s*(?:(?P<name>{NAME})|[\"']?\Z)")


def is_opener_meant(text: str, start: int, at: int, box: ToolBox, *, begins_line: bool) -> bool:
    """Return whether an opener, from `start` to `at`, was meant that no call stands behind."""
    if _ends_behind_delimiters(text, at):
        return begins_line or begins_sentence(text, start)
    inside = text[at : find_delimiter(text, at)]
    closed = is_closer_next(text, at)
    if (closed or begins_line) and _looks_like_calling(inside, box):
        return True
    if closed:
        return begins_sentence(text, start) and not _JOINT.fullmatch(inside, 0, NEAR_CHARS)
    return begins_line and _LINE_ENDS.match(text, at) is not None


def is_closer_meant(text: str, begin: int, start: int, box: ToolBox) -> bool:
    """Return whether a closer at `start` was meant that no call stands before: what stands there looks like one.
    `begin`: where the paragraph begins that it ends."""
    return _looks_like_calling(text[max(begin, start - NEAR_CHARS) : start], box)


def is_closer_lost(text: str, begin: int, start: int, end: int) -> bool:
    """Return whether a closer, from `start` to `end`, closes nothing and says nothing. `begin`: as above."""
    ends = _ends_behind_delimiters(text, end) or _LINE_ENDS.match(text, end) is not None
    glued = start > begin and (text[start - 1].isalnum() or text[start - 1] in ")]>*_")
    return ends and (glued or begins_sentence(text, start) or not text[begin:start].strip())


def is_tag_meant(text: str, start: int, box: ToolBox) -> bool:
    """Return whether a `<function=` that can't be read was meant: with a declared name in it, or cut off by the end of
    the text."""
    tag = _TAG.match(text, start)
    if tag is None:
        return False
    cut = tag.end() == len(text) and begins_sentence(text, start)
    return cut or (tag["name"] is not None and box.find(tag["name"]) is not None)


def _ends_behind_delimiters(text: str, at: int) -> bool:
    """Return whether nothing follows here but a few delimiters."""
    return len(text) - at <= NEAR_CHARS and has_only_delimiters(text[at:])


def _looks_like_calling(text: str, box: ToolBox) -> bool:
    """Return whether arguments, or the name of a declared tool, stand in a text."""
    if _ARGUMENTS.search(text):
        return True
    return any(box.find(name) is not None for name in _WORD.findall(text, 0, NEAR_CHARS))
