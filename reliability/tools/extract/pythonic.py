"""Calls written as Python: `[f(a=1), g(b="x")]`, and without the brackets inside an envelope or as a whole
answer.

Values are literals, read by `literal.read`; nothing is ever evaluated. An argument without a name would
need a guess at the order of the parameters, so it is `Unreadable`, and so are expressions, calls inside
calls and `**`.
"""

from __future__ import annotations

import re
from typing import Any

from reliability.tool_calls import RawCall, RepairKind
from reliability.tools.delimiters import BLANK
from reliability.tools.extract.literal import Unreadable, read
from reliability.tools.extract.payloads import Found, record_repairs, skip_space
from reliability.tools.extract.shapes import HalfCall, Setting

__all__ = ["read_python"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}+")
_CALL = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}+\((?=\s*(?:[A-Za-z_]\w*+\s*=(?!=)|[\"'\d{\[]|\)))")
_KEY = re.compile(r"([A-Za-z_]\w{0,127}+)\s*=(?!=)\s*")
_BETWEEN = re.compile(r"[\s,;]*+")


def read_python(text: str, at: int, setting: Setting) -> Found | None:
    """Read one list of calls, or calls in a row."""
    bracket = text[at : at + 1] == "["
    first = _CALL.match(text, skip_space(text, at + 1) if bracket else at)
    if first is None or not (bracket or setting.explicit or setting.alone):
        return None
    if not setting.explicit and setting.box.find(first[0][:-1]) is None:
        return None
    try:
        return _read_row(text, first.start(), bracket, setting)
    except Unreadable as bad:
        raise HalfCall(bad.reason, bad.at) from None


def _read_row(text: str, place: int, bracket: bool, setting: Setting) -> Found:
    """Read all calls of one list, or of one row."""
    calls: list[RawCall] = []
    while True:
        call, end = _read_call(text, place, setting)
        calls.append(call)
        between = _BETWEEN.match(text, end)
        place = between.end() if between else end
        if bracket and text[place : place + 1] == "]":
            return Found(calls, place + 1)
        if not bracket and not _CALL.match(text, place):
            return Found(calls, end)


def _read_call(text: str, at: int, setting: Setting) -> tuple[RawCall, int]:
    """Read one `name(key=value, ...)`."""
    name = _NAME.match(text, at)
    if name is None or text[name.end() : name.end() + 1] != "(":
        raise Unreadable("a call was expected", at)
    arguments: dict[str, Any] = {}
    kinds: list[RepairKind] = []
    at = skip_space(text, name.end() + 1)
    while text[at : at + 1] != ")":
        key = _KEY.match(text, at)
        if key is None:
            raise Unreadable("an argument without a name", at)
        if key[1] in arguments:
            raise Unreadable("an argument is given twice", at)
        value = read(text, key.end(), python=True)
        arguments[key[1]] = value.value
        kinds += [kind for kind in value.repair_kinds if kind is not RepairKind.LITERAL]
        at = _skip_to_next(text, value.end)
    return record_repairs(RawCall(name=name[0], arguments=arguments, format=setting.format), kinds), at + 1


def _skip_to_next(text: str, at: int) -> int:
    """Return the place of the next argument, or of the closing parenthesis."""
    space = BLANK.match(text, at)
    at = space.end() if space else at
    if text[at : at + 1] == ",":
        return skip_space(text, at + 1)
    if text[at : at + 1] != ")":
        raise Unreadable("a comma or ) was expected", at)
    return at
