"""Calls whose parameters are tags of their own name.

    <name><key>value</key></name>                                   declared names only: prose has tags too
    ]<]minimax[>[<key>value]<]minimax[>[</key>                      inside `<invoke name="...">`; values may nest
    <name>search</name><arguments>{json}</arguments>                inside an envelope

A tag of a declared name is a call where every child is one of its parameters and none that it requires is missing,
and a broken one where only some are; without any it is prose. A child of MiniMax M3 ends at its own closing tag, whose
token no value has: children in it are the members of an object, equal ones or `item`s the items of an array.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from reliability.tool_calls import RawCall, RepairKind
from reliability.tools.extract.literal import Unreadable, read
from reliability.tools.extract.payloads import Found, record_repairs, skip_space
from reliability.tools.extract.shapes import HalfCall, Setting
from reliability.tools.extract.typing_text import Arguments, type_text
from reliability.tools.format_parts import M3_TOKEN, NAME
from reliability.tools.schema.toolbox import Tool
from reliability.tools.schema.types_allowed import find_allowed_types, property_schema

__all__ = ["M3", "may_have_children", "read_children", "read_m3_children", "read_name_and_arguments"]

DEPTH_MAX = 32

M3 = re.compile(M3_TOKEN)
_M3_OPEN = re.compile(rf"{M3_TOKEN}\s*<(?P<key>[^<>/\s][^<>\s]{{0,127}})>")
_TAG_NAME = r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}+"
_OPEN = re.compile(rf"<(?P<name>{_TAG_NAME})\s{{0,8}}(?P<empty>/?)>")
_CHILD = re.compile(r"<(?P<key>[A-Za-z_][\w.-]{0,127})>")
_BEGUN = re.compile(rf"<{_TAG_NAME}\s{{0,8}}/?>\s*(?:<(?:[A-Za-z_][\w.-]{{0,127}})?)?\Z")
_NAME_TAG = re.compile(rf"<(?P<tag>name|tool_name|function_name|tool)>\s*(?P<name>{NAME})\s*</(?P=tag)>\s*")
_ARGUMENTS_TAG = re.compile(r"<(?P<tag>arguments|parameters|args|params|input)>\s*(?=\{)")


def may_have_children(text: str) -> bool:
    """Return whether a text is a tag behind which the first child may still come."""
    return _BEGUN.match(text) is not None


def read_children(text: str, at: int, setting: Setting) -> Found | None:
    """Read `<name>`, its parameters, and `</name>`, for declared tools."""
    head = _OPEN.match(text, at)
    tool = setting.box.find(head["name"]) if head is not None else None
    if head is None or tool is None:
        return None
    if head["empty"]:
        return _build_empty(tool, head.end(), setting)
    found, at = Arguments(tool), skip_space(text, head.end())
    while (child := _CHILD.match(text, at)) is not None:
        if not _is_parameter(tool, child["key"]):
            if not found.found:
                return None
            raise HalfCall("a tag that is no parameter stands between the parameters", at)
        closing = f"</{child['key']}>"
        end = text.find(closing, child.end())
        if end < 0:
            raise HalfCall("a parameter without an end", len(text))
        found.add_framed(child["key"], text, child.end(), end, on_lines=False)
        at = skip_space(text, end + len(closing))
    closing = f"</{head['name']}>"
    if not found.found:
        return _build_empty(tool, at + len(closing), setting) if text.startswith(closing, at) else None
    if not text.startswith(closing, at):
        raise HalfCall("the closing tag of the call is missing", at)
    if any(key not in found.found for key in tool.required):
        raise HalfCall("a parameter that it requires is missing", at)
    call = RawCall(name=tool.name, arguments=found.found, format=setting.format)
    return Found([record_repairs(call, found.kinds)], at + len(closing))


def _build_empty(tool: Tool, end: int, setting: Setting) -> Found | None:
    """Return the call of a tool that takes nothing."""
    if not tool.takes_nothing:
        return None
    return Found([RawCall(name=tool.name, arguments={}, format=setting.format)], end)


def _is_parameter(tool: Tool, key: str) -> bool:
    return property_schema(tool.parameters, tool.parameters, key) is not None


def read_m3_children(text: str, at: int, tool: Tool | None) -> tuple[Arguments, int]:
    """Read the parameters that stand here, each behind the token of MiniMax M3."""
    found = Arguments(tool)
    while (opened := _M3_OPEN.match(text, at)) is not None:
        if opened["key"] in found.found:
            raise Unreadable("a parameter is given twice", at)
        schema = property_schema(tool.parameters, tool.parameters, opened["key"]) if tool else None
        root = tool.parameters if tool else {}
        found.found[opened["key"]], at = _read_m3_value(text, opened, schema, root, found.kinds)
        at = skip_space(text, at)
    return found, at


def _read_m3_value(
    text: str, opened: re.Match[str], schema: Any, root: Mapping[str, Any], kinds: list[RepairKind], depth: int = 0
) -> tuple[Any, int]:
    """Read what stands in one tag, and the place behind its closing tag; add what was repaired to `kinds`."""
    if depth > DEPTH_MAX:
        raise Unreadable("nested too deeply", opened.end())
    closing, start = f"</{opened['key']}>", opened.end()
    token = M3.search(text, start)
    if token is None:
        raise Unreadable("a parameter without an end", len(text))
    lone = text.find(closing, start, token.start())
    place = skip_space(text, token.end())
    if lone >= 0:  # its closing tag lacks the token
        kinds.append(RepairKind.ENVELOPE)
    if lone >= 0 or text.startswith(closing, place):
        end, behind = (lone, lone) if lone >= 0 else (token.start(), place)
        value, repaired = type_text(text[start:end], schema, root)
        kinds += repaired
        return value, behind + len(closing)
    if text[start : token.start()].strip():
        raise Unreadable("text and tags in one parameter", start)
    return _read_m3_members(text, token.start(), closing, schema, root, kinds, depth)


def _read_m3_members(
    text: str, at: int, closing: str, schema: Any, root: Mapping[str, Any], kinds: list[RepairKind], depth: int
) -> tuple[Any, int]:
    """Read the members of an object, or the items of an array, up to the closing tag around them."""
    allowed = find_allowed_types(schema, root) if schema is not None else None
    pairs: list[tuple[str, Any]] = []
    while (child := _M3_OPEN.match(text, at)) is not None:
        inner = property_schema(schema, root, child["key"])
        if inner is None and isinstance(schema, Mapping):
            inner = schema.get("items")
        value, at = _read_m3_value(text, child, inner, root, kinds, depth + 1)
        pairs.append((child["key"], value))
        at = skip_space(text, at)
    token = M3.match(text, at)
    place = skip_space(text, token.end()) if token else at
    if not pairs or not text.startswith(closing, place):
        raise Unreadable("a parameter without an end", at)
    end = place + len(closing)
    keys = {key for key, _ in pairs}
    if len(keys) == 1 and (keys == {"item"} or len(pairs) > 1) and (allowed is None or "array" in allowed):
        return [value for _, value in pairs], end
    if len(keys) < len(pairs):
        raise Unreadable("a parameter is given twice", at)
    return dict(pairs), end


def read_name_and_arguments(text: str, at: int, setting: Setting) -> Found | None:
    """Read `<name>search</name><arguments>{json}</arguments>`, inside an envelope."""
    head = _NAME_TAG.match(text, at)
    opened = _ARGUMENTS_TAG.match(text, head.end()) if head is not None else None
    if head is None or opened is None or not setting.explicit:
        return None
    value = read(text, opened.end())
    if not isinstance(value.value, dict):
        raise Unreadable("the arguments must be an object", value.end)
    closing, end = f"</{opened['tag']}>", skip_space(text, value.end)
    kinds = list(value.repair_kinds)
    if text.startswith(closing, end):
        end += len(closing)
    else:
        kinds.append(RepairKind.ENVELOPE)
    call = RawCall(name=head["name"], arguments=value.value, format=setting.format)
    return Found([record_repairs(call, kinds)], end)
