"""What was meant as a call and is none any more: a declared name where a notation has it, and right behind it, or
before it, one of the tool's parameters with a value.

    {"name"": "f", "arguments": {"a": 1}}      <functionf>{"a": 1}</function>      Action f\nAction Input: {"a": 1}

Only notations that people don't write themselves are looked at: damaged Python or YAML is text, but in Gemma's fence.
A whole answer (`Calling f with {"a": 1}`, `r = f(a=1)`) may be more than text, and is asked about.
"""

from __future__ import annotations

import re
from bisect import insort
from functools import lru_cache
from itertools import islice

from reliability.tools.extract.shapes import ARGUMENT_KEYS, NAME_KEYS, WRAPPERS, find_end, fits
from reliability.tools.extract.text import read_literal
from reliability.tools.schema.toolbox import ToolBox

NAMES_MAX = 256  # of the places in one text
KEYS_MAX = 64  # of a tool's parameters, the first ones
_HEAD_CHARS, _TAIL_CHARS, _CODE_CHARS = 300, 200, 2_000
_NAMES, _ARGUMENTS = "|".join(NAME_KEYS), "|".join(ARGUMENT_KEYS)
_KEYS = (*ARGUMENT_KEYS, *NAME_KEYS, *WRAPPERS, "type", "id", "parameter", "key", "python")
_WORDS = "|".join(sorted({word for key in _KEYS for word in key.split("_")}, key=len, reverse=True))
_FRAMING = rf"[\W\d_]|x\b|{_WORDS}|json\b|code\b|message\b|constrain\b"
_FRAME = re.compile(rf"(?:{_FRAMING})*+", re.IGNORECASE)
_LABEL = re.compile(rf"(?!\s*>)(?:(?:calling|invoking|using|with|await|tools|functions)\b|{_FRAMING})*+", re.IGNORECASE)
_JSON = re.compile(rf"(?=[^\n]*[{{\[\"'])(?:[\W\d_]|x\b|{_WORDS})*?\b(?:{_NAMES})\W{{1,8}}", re.IGNORECASE)
_ARGUMENTS_FIRST = re.compile(rf"\W{{1,8}}(?:{_ARGUMENTS})\b.*\b(?:{_NAMES})\W{{1,8}}", re.DOTALL)
_ARGUMENT_KEY = re.compile(rf"\b(?:{_ARGUMENTS})\b", re.IGNORECASE)
_STATEMENT = re.compile(
    r"\s*(?:`{3,8}[\w+-]{0,32}\s+)?[\w :.]{0,80}(?:=|\bawait\b|\breturn\b|\bprint\()[\w .(]{0,40}(?<=[ .(=])"
)
_PRINTS = re.compile(r"(?:print\([^()\n]{1,200}\)|[\s;`)*])*+(?:(?:->|=>|[→=#]|//)[^\n]*[\s`]*)?")
_NAMED_VALUE = re.compile(r"\(\s*(\w{1,128})\s*[:=]\s*(?:[\"'“\d{\[-]|(?:true|false|null|none)\b)", re.IGNORECASE)
_ACTION = re.compile(r"\W*Action\W{1,8}")
_INPUT = re.compile(r"\W*Action Input\W")
_TAG = re.compile(
    r"[\W\d_]*[<|](?:function|invoke|tool_call|tool_use|python_tag|(?:tool_)?name)\W{0,4}(?:(?:name|tool)\W{1,4})?",
    re.DOTALL,
)
_CHANNEL = re.compile(
    r"[\W\d_]*(?:start\W+)?(?:commentary|analysis|assistant)[^\n]{0,40}\bto\W{0,3}(?:functions\W?)?", re.DOTALL
)
_VALUE = r"""["'“„«\[{]|-?\d|true\b|false\b|null\b|none\b"""


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
    """Return whether the name of a tool `at` this place is that of a call that can't be read. `line`: its line's
    begin."""
    tool = box.find(name)
    head, tail = text[line:at], text[at + len(name) : at + len(name) + _TAIL_CHARS]
    if tool is None or at - line > _HEAD_CHARS or head.endswith("`") or tail[:1].isalnum():
        return False
    if tail.startswith("(") and text.startswith("```tool_code", text.rfind("```", max(0, at - _CODE_CHARS), at)):
        return True
    near = (head + tail).lower()  # a key that isn't there needs no pattern, however long it is
    keys = tuple(key for key in islice(tool.parameters.get("properties", {}), KEYS_MAX) if key.lower() in near)
    if not keys:
        return False
    given = _compile_given(keys)
    if _ARGUMENTS_FIRST.fullmatch(head):
        return given.search(head) is not None
    frame, value = _FRAME.match(tail), given.search(tail)
    if frame is None or value is None or value.start() > frame.end():
        return False
    between = tail[: value.start()]
    if _JSON.fullmatch(head):
        return _ARGUMENT_KEY.search(between) is not None
    marked = _TAG.fullmatch(head) or _CHANNEL.fullmatch(head)
    acts = _ACTION.fullmatch(head) is not None and (between[:1] == "(" or _INPUT.match(between) is not None)
    return marked is not None or acts


def is_loose_call(text: str, at: int, name: str, box: ToolBox) -> bool:
    """Return whether a text is nothing but the name of a tool `at` this place, its arguments, and a label or a
    statement around them."""
    tool, tail = box.find(name), text[at + len(name) :].lstrip("*_")
    end = find_end(tail, 0) if tail.startswith("(") else None
    if end is not None and _PRINTS.fullmatch(tail, end):
        first = _NAMED_VALUE.match(tail) if _LABEL.fullmatch(text, 0, at) and text[at - 1 : at] != "`" else None
        known = first is not None and tool is not None and first[1] in tool.parameters.get("properties", {})
        if known or _STATEMENT.fullmatch(text, 0, at):
            return True
    begin, end = tail.find("{", 0, _TAIL_CHARS), tail.rfind("}") + 1
    if tool is None or begin < 0 or not (_LABEL.fullmatch(text, 0, at) and _LABEL.fullmatch(tail, 0, begin)):
        return False
    given = read_literal(tail[begin:end])
    return given is not None and given[0] != {} and fits(given[0], tool) and not re.search(r"\w", tail[end:])


@lru_cache(maxsize=256)
def _compile_given(keys: tuple[str, ...]) -> re.Pattern[str]:
    """Compile what finds a parameter with a value: `"a": 1`, `a='x'`, `<parameter=a>`, `<arg_key>a</arg_key>`."""
    key = "|".join(map(re.escape, keys))
    return re.compile(
        rf"""(?<!\w)(?:{key})(?:\W{{0,4}}[:=]\W{{0,4}}?(?:{_VALUE})|["']\w)|[=<>]["']?(?:{key})["']?[<>]""",
        re.IGNORECASE,
    )
