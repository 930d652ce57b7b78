"""Calls in sections of special tokens, the name in one, the arguments in others: Kimi K3, Solar, PLaMo 3 and Qwen2.

The tables of formats have an example of each. The tokens say by themselves that this is a call; what can't be read
between them is `Unreadable`.
"""

from __future__ import annotations

import re

from reliability.tool_calls import RepairKind
from reliability.tools.extract.literal import Unreadable
from reliability.tools.extract.payloads import Found, build_found, read_object, skip_space
from reliability.tools.extract.shapes import HalfCall, Setting
from reliability.tools.extract.text import Arguments
from reliability.tools.format_row import K3_CALL, NAME
from reliability.tools.formats import CLOSER

_ATTRIBUTES = r"(?:\s+[\w-]{1,32}=\"[^\"<>]{0,128}\")*+\s*"
_CALL = re.compile(
    rf"(?:<\|open\|>[a-z<>|/ \n]{{0,24}}?)?call(?=[^<>]*?\stool=\"(?P<name>[^\"<>]{{1,160}})\"){_ATTRIBUTES}<\|sep\|>"
)
_BEGUN = re.compile(rf"{K3_CALL}|(?:<\|open\|>)?call |<\|plamo:begin_tool_name:plamo\|>")
_ARGUMENT = re.compile(
    rf"<\|open\|>argument(?=[^<>]*?\skey=\"(?P<key>[^\"<>]{{1,128}})\")"
    rf"(?=(?:[^<>]*?\stype=\"(?P<type>\w{{1,32}})\")?){_ATTRIBUTES}<\|sep\|>"
)
_K3_MARK = re.compile(r"<\|(?:open|close)\|>\s*(?:argument|call|json|tools)\b")
_JSON = re.compile(rf"<\|open\|>json{_ATTRIBUTES}<\|sep\|>")
_PLAMO = re.compile(
    rf"<\|plamo:begin_tool_name:plamo\|>\s*(?P<name>{NAME})\s*<\|plamo:end_tool_name:plamo\|>\s*"
    r"<\|plamo:begin_tool_arguments:plamo\|>\s*(?:<\|plamo:constrain\|>\s*json\s*)?(?:<\|plamo:msg\|>)?\s*"
)
_PLAMO_END = re.compile(r"\s*<\|plamo:end_tool_arguments:plamo\|>")
# The envelope's own marks have been read; behind the first of them stands an id.
_SOLAR = re.compile(
    rf"(?:(?P<id>[\w-]{{1,64}})\s*)?<\|tool_call:name\|>\s*(?P<name>{NAME})\s*<\|tool_call:args\|>\s*(?=\{{)"
)
_SOLAR_ARGUMENTS = re.compile(rf"(?P<name>{NAME})\s*(?=<\|tool_arg:start\|>)")
_SOLAR_ARGUMENT = re.compile(
    r"<\|tool_arg:start\|>(?P<key>[^<>]{1,128})<\|tool_arg:value\|>"
    r"(?P<value>[^<]*+(?:<(?!\|tool_(?:arg|call):)[^<]*+)*+)<\|tool_arg:end\|>\s*"
)
_FLOWER = re.compile(rf"✿FUNCTION✿\s{{0,8}}[:：]\s{{0,8}}(?P<name>{NAME})\s{{0,8}}")
_FLOWER_ARGUMENTS = re.compile(r"✿ARGS✿\s{0,8}[:：]\s{0,8}")
_FLOWER_END = re.compile(r"\s*(?P<stray>[}\])]{0,2})\s*✿(?:RESULT|RETURN)✿\s{0,8}[:：]?")


def read_sections(text: str, at: int, setting: Setting) -> Found | None:
    """Read one call of Kimi K3, Solar Open or PLaMo 3; in an envelope its own first mark may be lost."""
    if not (setting.explicit or text.startswith("<", at)):
        return None
    if setting.explicit and (found := _read_solar(text, at, setting)) is not None:
        return found
    if (head := _CALL.match(text, at)) is not None:
        return _read_kimi(text, head, setting)
    if (head := _PLAMO.match(text, at)) is not None:
        value = read_object(text, head.end())
        end = _PLAMO_END.match(text, value.end)
        kinds = value.repair_kinds if end else (*value.repair_kinds, RepairKind.ENVELOPE)
        return build_found(head["name"], value.value, setting, end.end() if end else value.end, kinds)
    if _BEGUN.match(text, at):
        raise HalfCall("a call without a name, or cut off", at)
    return None


def _read_kimi(text: str, head: re.Match[str], setting: Setting) -> Found:
    name, at = _unescape(head["name"]), skip_space(text, head.end())
    found = Arguments(setting.box.find(name))
    block = _JSON.match(text, at)
    if block is not None:
        value = read_object(text, block.end())
        at = _skip_close(text, skip_space(text, value.end), "json")
        found.found, found.kinds = value.value, list(value.repair_kinds)
    while block is None and (opened := _ARGUMENT.match(text, at)) is not None:
        end = text.find("<|close|>argument<|sep|>", opened.end())
        if end < 0:
            raise Unreadable("an argument without an end", len(text))
        if _K3_MARK.search(text, opened.end(), end):
            raise Unreadable("an argument's end that can't be read", end)
        is_string = None if opened["type"] is None else opened["type"] == "string"
        found.add(_unescape(opened["key"]), text[opened.end() : end], at, is_string)
        at = skip_space(text, _skip_close(text, end, "argument"))
    end = _skip_close(text, skip_space(text, at), "call")
    return build_found(name, found.found, setting, end, found.kinds)


def _unescape(attribute: str) -> str:
    return attribute.replace("&quot;", '"').replace("&amp;", "&")


def _skip_close(text: str, at: int, section: str) -> int:
    closing = f"<|close|>{section}<|sep|>"
    if not text.startswith(closing, at):
        raise Unreadable(f"the end of the {section} is missing", at)
    return at + len(closing)


def _read_solar(text: str, at: int, setting: Setting) -> Found | None:
    head = _SOLAR.match(text, at)
    if head is not None:
        value = read_object(text, head.end())
        return build_found(head["name"], value.value, setting, value.end, value.repair_kinds, head["id"])
    head = _SOLAR_ARGUMENTS.match(text, at)
    if head is None:
        return None
    found, at = Arguments(setting.box.find(head["name"])), head.end()
    while (argument := _SOLAR_ARGUMENT.match(text, at)) is not None:
        found.add(argument["key"].strip(), argument["value"], at)
        at = argument.end()
    if not CLOSER.match(text, at):
        raise Unreadable("an argument, or the call, without an end", at)
    return build_found(head["name"], found.found, setting, at, found.kinds)


def read_flowers(text: str, at: int, setting: Setting) -> Found | None:
    """Read one call of Qwen2."""
    head = _FLOWER.match(text, at)
    if head is None:
        return None
    arguments = _FLOWER_ARGUMENTS.match(text, head.end())
    if arguments is None:
        if setting.box.find(head["name"]) is None:
            return None
        raise HalfCall("a call without arguments", head.end())
    value = read_object(text, arguments.end(), HalfCall)
    end = _FLOWER_END.match(text, value.end)
    kinds = (*value.repair_kinds, *([RepairKind.EXTRA_TEXT] if end and end["stray"] else ()))
    return build_found(head["name"], value.value, setting, end.end() if end else value.end, kinds)
