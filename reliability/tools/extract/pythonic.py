"""Calls written as Python: `[f(a=1), g(b="x")]`, and without the brackets inside an envelope or as a whole answer.

    f(a=1); g(b="x")      f({"a": 1})      "f"(a=1)      f\\_x(a=1)      print(f(a=1))      ["f(a=1)", "g()"]

Values are literals, read by `literal.read`; nothing is ever evaluated. `Unreadable`: an argument without a name,
expressions, calls inside calls, `**`, and a string with underscores where Markdown has escaped those of a name or key.
"""

from __future__ import annotations

import re
from typing import Any

from reliability.tool_calls import RawCall, RepairKind
from reliability.tools.extract.literal import Unreadable, read
from reliability.tools.extract.payloads import Found, record_repairs, skip_parenthesis, skip_space, skip_to_next
from reliability.tools.extract.shapes import HalfCall, Setting
from reliability.tools.formats import CLOSER, FENCE
from reliability.tools.schema.toolbox import Tool

_NAME = re.compile(r"[\"'`]?(?P<name>[A-Za-z0-9_\\][A-Za-z0-9_.:/\\-]{0,127}+)[\"'`]?")
_CALL = re.compile(rf"(?:print\(\s{{0,8}})?{_NAME.pattern}\((?=\s*(?:[A-Za-z_](?:\\?\w)*+\s*=(?!=)|[\"'\d{{\[]|\)))")
_PRINT = re.compile(r"print\(\s{0,8}")
_KEY = re.compile(r"([A-Za-z_](?:\\?\w){0,127}+)\s*=(?!=)\s*")
_BETWEEN = re.compile(r"[\s,;]*+")
_LOST_ARGUMENT = re.compile(r"[ \t,]{0,8}[A-Za-z_]\w{0,127}[ \t]?=(?!=)[^\n()]{0,400}\)")
_SIGN = re.compile(r"[()]|(?<!\\)(?:\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+')")
_ENDS = re.compile(rf"{CLOSER.pattern}|{FENCE.pattern}", re.IGNORECASE)
_TEXTS = re.compile(r"\[\s{0,64}[\"']")


def read_python(text: str, at: int, setting: Setting) -> Found | None:
    """Read one list of calls, or calls in a row."""
    if _TEXTS.match(text, at) and (setting.explicit or setting.alone):
        return _read_texts(text, at, setting)
    bracket = text[at : at + 1] == "["
    first = _CALL.match(text, skip_space(text, at + 1) if bracket else at)
    if first is None or not (bracket or setting.explicit or setting.alone):
        return None
    if not setting.explicit and setting.box.find(_strip_escapes(first["name"])) is None:
        return None
    try:
        return _read_row(text, first.start(), bracket, setting)
    except Unreadable as bad:
        raise HalfCall(bad.reason, bad.at) from None


def is_one_call(text: str, at: int) -> bool:
    """Return whether all from here on is one `name(...)`, or a list of such, well or badly written."""
    bracket = text[at : at + 1] == "["
    name = _NAME.match(text, skip_space(text, at + 1) if bracket else at)
    if name is None or text[name.end() : name.end() + 1] != "(":
        return False
    depth = 0
    for sign in _SIGN.finditer(text, name.end()):
        depth += {"(": 1, ")": -1}.get(sign[0], 0)
        if depth == 0:
            rest = text[sign.end() :].strip(" \t\r\n`;")
            return rest == "]" or rest[:1] + rest[-1:] == ",]" if bracket else not rest
    return False


def _read_texts(text: str, at: int, setting: Setting) -> Found | None:
    try:
        value = read(text, at)
    except Unreadable:
        return None
    calls: list[RawCall] = []
    for one in value.value:
        found = read_python(one.strip(), 0, setting) if isinstance(one, str) and not one.startswith("[") else None
        if found is None or one.strip()[found.end :].strip("; "):
            return None
        calls += found.calls
    return Found(calls, value.end) if calls else None


def _strip_escapes(name: str) -> str:
    return name.replace("\\_", "_")


def _read_row(text: str, place: int, bracket: bool, setting: Setting) -> Found:
    calls: list[RawCall] = []
    while True:
        call, end = _read_call(text, place, setting)
        calls.append(call)
        between = _BETWEEN.match(text, end)
        place = between.end() if between else end
        if bracket and text[place : place + 1] == "]":
            return Found(calls, place + 1)
        if bracket and skip_space(text, end) == place and (place == len(text) or _ENDS.match(text, place)):
            calls = [record_repairs(call, [RepairKind.ENVELOPE]) for call in calls]
            return Found(calls, end, unended=place == len(text))
        if not bracket and not _CALL.match(text, place):
            if _LOST_ARGUMENT.match(text, end):
                raise Unreadable("a call that was closed before its last argument", end)
            return Found(calls, end)


def _read_call(text: str, at: int, setting: Setting) -> tuple[RawCall, int]:
    """Read one `name(key=value, ...)`."""
    printed = _PRINT.match(text, at) if setting.explicit or setting.alone else None
    printed = printed if printed and setting.box.find("print") is None else None
    name = _NAME.match(text, printed.end() if printed else at)
    if name is None or text[name.end() : name.end() + 1] != "(":
        raise Unreadable("a call was expected", at)
    tool_name = _strip_escapes(name["name"])
    start = skip_space(text, name.end() + 1)
    if text[start : start + 1] == "{":
        arguments, kinds, end = _read_object(text, start, setting.box.find(tool_name))
        escaped = False
    else:
        arguments, kinds, end, escaped = _read_arguments(text, start)
    if (escaped or "\\_" in name["name"]) and "\\_" in text[start:end] and "\\_" in repr(arguments):
        raise Unreadable("an escaped underscore: its own, or one of Markdown", at)
    end = skip_parenthesis(text, end) if printed else end
    return record_repairs(RawCall(name=tool_name, arguments=arguments, format=setting.format), kinds), end


def _read_object(text: str, at: int, tool: Tool | None) -> tuple[dict[str, Any], list[RepairKind], int]:
    """Read `{"key": value}` as all arguments of a tool that has these parameters; and the place behind the call."""
    value = read(text, at)
    known = tool.parameters.get("properties", {}) if tool is not None else {}
    if not isinstance(value.value, dict) or not value.value.keys() <= known.keys():
        raise Unreadable("an argument without a name", at)
    kinds: list[RepairKind] = [kind for kind in value.repair_kinds if kind is not RepairKind.LITERAL]
    return value.value, kinds, skip_parenthesis(text, value.end)


def _read_arguments(text: str, at: int) -> tuple[dict[str, Any], list[RepairKind], int, bool]:
    """Read `key=value, ...)`; the place behind the call; and whether Markdown has escaped a key."""
    arguments: dict[str, Any] = {}
    escaped = False
    kinds: list[RepairKind] = []
    while text[at : at + 1] != ")":
        key = _KEY.match(text, at)
        if key is None:
            raise Unreadable("an argument without a name", at)
        name = _strip_escapes(key[1])
        escaped = escaped or name != key[1]
        if name in arguments:
            raise Unreadable("an argument is given twice", at)
        value = read(text, key.end(), python=True)
        arguments[name] = value.value
        kinds += [kind for kind in value.repair_kinds if kind is not RepairKind.LITERAL]
        at = skip_to_next(text, value.end, ")")[1]
    return arguments, kinds, at + 1, escaped
