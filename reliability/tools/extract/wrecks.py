"""What was meant as a call and is none any more, in whatever notation: a declared name in the marks of a call, and
right behind it, or before it, one of the tool's parameters with a value.

    {"name"": "f", "arguments": {"a": 1}}      <functionf>{"a": 1}</function>      f(a=='x')      Action: f}

Only what no reader could read is looked at here, and only lines without a word that calls don't have: a sentence about
a tool has one.
"""

from __future__ import annotations

import re
from bisect import insort
from functools import lru_cache

from reliability.tools.extract.shapes import ARGUMENT_KEYS, NAME_KEYS, WRAPPERS
from reliability.tools.formats import CALL_FORMATS
from reliability.tools.schema.toolbox import ToolBox

NAMES_MAX = 256  # of the places in one text
_HEAD_CHARS, _TAIL_CHARS = 300, 200
_KEYS = (*ARGUMENT_KEYS, *NAME_KEYS, *WRAPPERS, "type", "id", "parameter", "key")
_OPENERS = {word for row in CALL_FORMATS for opener in row.opens for word in re.findall(r"[A-Za-z]{2,}", opener)}
_WORDS = "|".join(sorted({*_OPENERS, *(word for key in _KEYS for word in key.split("_"))}, key=len, reverse=True))
_FRAME = re.compile(rf"(?:[\W\d_]|x\b|{_WORDS})*+", re.IGNORECASE)
_ARGUMENTS_FIRST = re.compile(
    rf"\W{{1,8}}(?:{'|'.join(ARGUMENT_KEYS)})\b.*\b(?:{'|'.join(NAME_KEYS)})\W{{1,8}}", re.DOTALL
)
_VALUE = r"""["'\[{]|-?\d|true\b|false\b|null\b|none\b"""


def find_names(text: str, box: ToolBox, begin: int) -> list[tuple[int, str]]:
    """Find the places of declared names in a text, from `begin` on, the last first."""
    found: list[tuple[int, str]] = []
    for tool in box.tools:
        at = text.find(tool.name, begin)
        while at >= 0 and len(found) < NAMES_MAX:
            insort(found, (-at, tool.name))
            at = text.find(tool.name, at + len(tool.name))
    return [(-at, name) for at, name in found]


def is_wreck(text: str, line: int, at: int, name: str, box: ToolBox) -> bool:
    """Return whether the name of a tool that stands `at` this place, in a line that begins at `line`, is that of a call
    that can't be read."""
    tool = box.find(name)
    keys = tuple(tool.parameters.get("properties", {})) if tool is not None else ()
    head, tail = text[line:at], text[at + len(name) : at + len(name) + _TAIL_CHARS]
    if not keys or at - line > _HEAD_CHARS or head.endswith("`") or tail[:1].isalnum():
        return False
    given = _compile_given(keys)
    if _ARGUMENTS_FIRST.fullmatch(head):
        return given.search(head) is not None
    frame, value = _FRAME.match(tail), given.search(tail)
    near = frame is not None and value is not None and value.start() <= frame.end()
    return near and _FRAME.fullmatch(head) is not None


@lru_cache(maxsize=256)
def _compile_given(keys: tuple[str, ...]) -> re.Pattern[str]:
    """Compile what finds a parameter with a value: `"a": 1`, `a='x'`, `<parameter=a>`, `<arg_key>a</arg_key>`."""
    key = "|".join(map(re.escape, keys))
    return re.compile(
        rf"""(?<!\w)(?:{key})(?:\W{{0,4}}[:=]\W{{0,4}}?(?:{_VALUE})|["']\w)|[=>]["']?(?:{key})["']?[<>]""",
        re.IGNORECASE,
    )
