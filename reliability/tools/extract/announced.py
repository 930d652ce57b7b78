"""Calls of declared tools behind words that announce them.

    Action: name                         to=functions.name {json}          Action: ```json
    Action Input: {json}                                                    [{json}]```

Where the name is no declared one the words are prose.
"""

from __future__ import annotations

import re
from dataclasses import replace

from reliability.tool_calls import RawCall
from reliability.tools.extract.broken_json import looks_like_a_call
from reliability.tools.extract.literal import Unreadable, read
from reliability.tools.extract.payloads import Found, read_json, record_repairs, skip_space
from reliability.tools.extract.shapes import HalfCall, Setting
from reliability.tools.format_parts import NAME
from reliability.tools.format_row import Reader
from reliability.tools.schema.toolbox import ToolBox

__all__ = ["read_announced"]

_HEADS = {
    Reader.REACT: re.compile(rf"(?P<name>{NAME})[ \t]{{0,8}}\r?\n\s{{0,8}}Action Input:\s{{0,8}}", re.IGNORECASE),
    Reader.CHANNEL: re.compile(rf"(?P<name>{NAME})[^\n{{]{{0,64}}\s{{0,8}}(?=\{{|\Z)"),
}
_FENCE = re.compile(r"\s{0,8}`{3,8}[\w+.#-]{0,32}\s{0,8}")


def read_announced(text: str, at: int, kind: Reader, box: ToolBox) -> Found | None:
    """Read the call behind the words that end here."""
    if kind is Reader.ANNOUNCED:
        return _read_fenced(text, at, Setting(box, kind.value))
    named = _HEADS[kind].match(text, at)
    if named is None or box.find(named["name"]) is None:
        return None
    value = read(text, named.end())
    if not isinstance(value.value, dict):
        raise Unreadable("the arguments must be an object", value.end)
    call = RawCall(name=named["name"], arguments=value.value, format=kind.value)
    return Found([record_repairs(call, list(value.repair_kinds))], value.end)


def _read_fenced(text: str, at: int, setting: Setting) -> Found | None:
    """Read calls in JSON, in a fence or without."""
    fence = _FENCE.match(text, at)
    start = skip_space(text, fence.end() if fence else at)
    try:
        found = read_json(text, start, setting)
    except Unreadable as bad:
        if looks_like_a_call(text, start, setting.box):
            raise HalfCall(bad.reason, bad.at) from None
        raise
    if found is None or not found.calls:
        return None
    closing = _FENCE.match(text, found.end) if fence else None
    return replace(found, end=closing.end() if closing else found.end)
