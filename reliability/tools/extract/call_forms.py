"""Whether an object that names no declared tool is in the form of a call, or data that has a name and more.

{"name": "web_search", "arguments": {"query": "x"}}     a call of a tool that isn't there
{"name": "add", "parameters": {"a": "int"}}             a signature: the values are types
{"name": "valid login", "input": {"user": "a"}}         data: no tool is called so, and `input` is any word
"""

from __future__ import annotations

import re
from typing import Any

from reliability.tool_calls import RawCall
from reliability.tools.format_row import NAME

# Keys that calls have and data seldom has; `name` beside `input`, or `action` beside `params`, are data as well.
_SURE_KEYS = frozenset({
    "arguments", "parameters", "action_input", "tool_input", "tool_args", "kwargs", "tool", "tool_name",
    "function_name", "recipient_name", "tool_calls", "tool_call", "function_call", "function_calls", "tool_uses",
})  # fmt: skip
_WRAPPERS = ("function", "calls", "actions")
_NAMED = re.compile(NAME)
_TYPE_NAME = re.compile(
    r"(?:optional |list of |array of )?(?:str(?:ing)?|int(?:eger)?|float|double|num(?:ber|eric)?|bool(?:ean)?"
    r"|list|array|dict|object|any|none|null|void|bytes|tuple|set|date|datetime|path|callable|function|optional|union)s?\b"
    r"(?: ?[\[<(|?=].*| or .*)?",
    re.IGNORECASE,
)


def has_call_form(value: Any) -> bool:
    """Return whether each object has a key that only calls have, itself or in what it wraps."""
    if isinstance(value, list):
        return all(map(has_call_form, value))
    if not isinstance(value, dict):
        return False
    return not _SURE_KEYS.isdisjoint(value) or any(has_call_form(value[key]) for key in _WRAPPERS if key in value)


def gives_values(call: RawCall) -> bool:
    """Return whether a call has the name of one, be a model's mark behind it, and arguments with values."""
    given = call.arguments
    if _NAMED.fullmatch(call.name.partition("<|")[0]) is None:
        return False
    if isinstance(given, str):
        return given.lstrip().startswith("{")
    if not given:
        return given is None or given == {}
    return isinstance(given, dict) and not all(map(_is_type, given.values()))


def _is_type(value: Any) -> bool:
    return isinstance(value, str) and _TYPE_NAME.fullmatch(value) is not None
