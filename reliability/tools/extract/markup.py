"""Calls written as tags: the parameters are elements, and their values are bare text.

    <function=name><parameter=key>value</parameter></function>             <function=name>{json}</function>
    <invoke name="name"><parameter name="key">value</parameter></invoke>   (any namespace, also `｜DSML｜`)
    ]<]minimax[>[<invoke name="name">]<]minimax[>[<key>value]<]minimax[>[</key>]<]minimax[>[</invoke>
    name<arg_key>key</arg_key><arg_value>value</arg_value>
    <tool name="name" key="value" />

Bare text has no type, so the tool's schema gives it one (`typing_text.py`). DeepSeek says itself which of its values
are strings. A value in which the next parameter begins means that a closing tag is missing: two
readings, so `Unreadable`. The end of the text without the closing tag of the call means that more may have
been cut off: `Unreadable` too, unless a closer of the envelope follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from reliability.tool_calls import RawCall, RepairKind
from reliability.tools.delimiters import CLOSER, compile_closers
from reliability.tools.extract.children import read_m3_children
from reliability.tools.extract.literal import Unreadable, read
from reliability.tools.extract.payloads import Found, record_repairs, skip_space
from reliability.tools.extract.shapes import Setting
from reliability.tools.extract.typing_text import Arguments
from reliability.tools.format_parts import DSML, M3_TOKEN, NAME
from reliability.tools.format_row import Reader
from reliability.tools.schema.toolbox import Tool

__all__ = ["read_attributes", "read_elements", "read_pairs"]

_SPACE = rf"(?:\w{{1,32}}:|{DSML})?"
_M3 = rf"(?:{M3_TOKEN}\s{{0,8}})?"
_HEAD = re.compile(
    rf"(?P<m3>{_M3})<{_SPACE}(?P<tag>function|invoke)(?:=\s*[\"']?(?P<bare>{NAME})[\"']?|\s{{0,8}}name\s*=\s*[\"']?(?P<quoted>{NAME})[\"']?)\s*>"
)
_PARAMETER = re.compile(
    rf"(?P<m3>{_M3})<{_SPACE}param(?:eter)?(?:=\s*[\"']?(?P<bare>[^<>\"'\s]{{1,128}})[\"']?|\s{{0,8}}name\s*=\s*(?:[\"'](?P<quoted>[^<>\"']{{1,128}})[\"']|(?P<plain>[^<>\"'\s]{{1,128}})))"
    r"(?:\s+string=[\"'](?P<string>true|false)[\"'])?(?:\s+[\w-]{1,32}=[\"'][^<>\"']{0,64}[\"'])*+\s*>"
)
_PARAMETER_TAG = re.compile(rf"<{_SPACE}param(?:eter)?\b")
_PARAMETER_END = re.compile(rf"</{_SPACE}param(?:eter)?>")
_M3_PARAMETER_END = re.compile(rf"{_M3}{_PARAMETER_END.pattern}")
_FUNCTION_END = compile_closers(Reader.ELEMENTS)
_PAIR_SPACE, _PAIR_SUFFIX = r"(?:\w{1,16}[_|:])?", r"(?::\w{1,10})?"
_PAIRS = re.compile(rf"(?P<name>{NAME})\s*(?:<tool_sep{_PAIR_SUFFIX}>\s*)?(?=<{_PAIR_SPACE}arg_key{_PAIR_SUFFIX}>)")
_ONLY_NAME = re.compile(rf"(?P<name>{NAME})\s*+(?:<tool_sep{_PAIR_SUFFIX}>\s*+)?")
_PAIR = re.compile(
    rf"<{_PAIR_SPACE}arg_key{_PAIR_SUFFIX}>(?P<key>[^<>]{{1,128}})</{_PAIR_SPACE}arg_key{_PAIR_SUFFIX}>\s*"
    rf"<{_PAIR_SPACE}arg_value{_PAIR_SUFFIX}>(?P<value>[^<]*+(?:<(?!/?{_PAIR_SPACE}arg_(?:key|value))[^<]*+)*+)"
    rf"</{_PAIR_SPACE}arg_value{_PAIR_SUFFIX}>\s*"
)
_PAIR_PART = re.compile(rf"</?{_PAIR_SPACE}arg_")
_JSON_TEXT = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_TOOL = re.compile(rf"<tool\s+name\s*=\s*\"(?P<name>{NAME})\"")
_ATTRIBUTE = re.compile(r"\s+(?P<key>[\w.-]{1,128})\s*=\s*\"(?P<value>[^\"<>&]*+)\"")
_TOOL_END = compile_closers(Reader.ATTRIBUTES)


def read_elements(text: str, at: int, setting: Setting) -> Found | None:
    """Read one `<function=...>` or `<invoke ...>`; with a JSON object as its body, or with parameters."""
    head = _HEAD.match(text, at)
    if head is None:
        return None
    name = head["bare"] or head["quoted"]
    if not setting.explicit and head["tag"] == "invoke" and setting.box.find(name) is None:
        return None
    at = skip_space(text, head.end())
    if text[at : at + 1] == "{":
        value = read(text, at)
        if not isinstance(value.value, dict):
            raise Unreadable("the arguments must be an object", value.end)
        end, kinds = _find_end(text, skip_space(text, value.end), list(value.repair_kinds), complete=True)
        return Found([record_repairs(RawCall(name=name, arguments=value.value, format=setting.format), kinds)], end)
    tool = setting.box.find(name)
    arguments, at = _read_parameters(text, at, tool)
    if not arguments.found and head["m3"]:
        arguments, at = read_m3_children(text, at, tool)
    end, kinds = _find_end(text, at, arguments.kinds, complete=False)
    return Found([record_repairs(RawCall(name=name, arguments=arguments.found, format=setting.format), kinds)], end)


def _find_end(text: str, at: int, kinds: list[RepairKind], *, complete: bool) -> tuple[int, list[RepairKind]]:
    """Find the place after the call's closing tag. `complete`: the arguments have an end of their own."""
    close = _FUNCTION_END.match(text, at)
    if close is not None:
        return close.end(), kinds
    if CLOSER.match(text, at) or (complete and skip_space(text, at) == len(text)):
        return at, [*kinds, RepairKind.ENVELOPE]
    raise Unreadable("the closing tag of the call is missing", at)


def _read_parameters(text: str, at: int, tool: Tool | None) -> tuple[Arguments, int]:
    found = Arguments(tool)
    while (opened := _PARAMETER.match(text, at)) is not None:
        end, behind = _find_parameter_end(text, opened, found)
        is_string = None if opened["string"] is None else opened["string"] == "true"
        key = opened["bare"] or opened["quoted"] or opened["plain"]
        if is_string is None:
            found.add_framed(key, text, opened.end(), end, on_lines=opened["bare"] is not None)
        else:
            found.add(key, text[opened.end() : end], at, is_string)
        at = skip_space(text, behind)
    return found, at


def _find_parameter_end(text: str, opened: re.Match[str], found: Arguments) -> tuple[int, int]:
    """Find where a parameter's text ends, and the place behind its closing tag. A closing tag that stands there twice
    is one; the last parameter's may be missing, where the call's own stands in its place and no other comes before the
    next call's parameters."""
    closing, at = _M3_PARAMETER_END if opened["m3"] else _PARAMETER_END, opened.end()
    closed = closing.search(text, at)
    bound = closed.start() if closed else len(text)
    call_end, opener = _FUNCTION_END.search(text, at, bound), _PARAMETER.search(text, at, bound)
    if call_end is not None and (opener is None or call_end.start() < opener.start()):
        if opener is None and closed is not None:
            raise Unreadable("a parameter's closing tag is missing", bound)
        found.kinds.append(RepairKind.ENVELOPE)
        return call_end.start(), call_end.start()
    if opener is not None:
        raise Unreadable("a parameter's closing tag is missing", bound)
    if closed is None:
        raise Unreadable("a parameter without an end", len(text))
    end, holds_tag = closed.end(), _PARAMETER_TAG.search(text, at, bound) is not None
    while (again := closing.match(text, skip_space(text, end))) is not None:
        if holds_tag or again[0] != closed[0]:
            raise Unreadable("a closing tag that may be the text's own", bound)
        found.kinds.append(RepairKind.ENVELOPE)
        end = again.end()
    return closed.start(), end


def read_pairs(text: str, at: int, setting: Setting) -> Found | None:
    """Read `name`, then keys and values in turn; in an envelope a declared name may stand alone."""
    head = _PAIRS.match(text, at)
    if head is None and setting.explicit and (only := _ONLY_NAME.match(text, at)) is not None:
        known = setting.box.find(only["name"]) is not None and CLOSER.match(text, only.end()) is not None
        return Found([RawCall(name=only["name"], arguments={}, format=setting.format)], only.end()) if known else None
    if head is None or (not setting.explicit and setting.box.find(head["name"]) is None):
        return None
    found = Arguments(setting.box.find(head["name"]))
    at = head.end()
    for pair in _match_all(_PAIR, text, at):
        if _JSON_TEXT.fullmatch(pair["value"].strip()):
            raise Unreadable("a quoted value: the quotes may belong to it or not", at)
        key = pair["key"].strip()
        found.add(key, pair["value"], at)
        found.kinds += [RepairKind.LAYOUT] if len(key) < len(pair["key"]) else []
        at = pair.end()
    if _PAIR_PART.match(text, at):
        raise Unreadable("a key or a value without its closing tag", at)
    closed = CLOSER.match(text, at)
    if setting.explicit and not closed:
        raise Unreadable("the closing tag of the call is missing", at)
    if closed and (part := _PAIR_PART.search(text, closed.end())) and part[0].startswith("</"):
        raise Unreadable("a closing tag of the call that may be the last value's own", at)
    return Found(
        [record_repairs(RawCall(name=head["name"], arguments=found.found, format=setting.format), found.kinds)], at
    )


def read_attributes(text: str, at: int, setting: Setting) -> Found | None:
    """Read `<tool name="bash" command="ls" />`, for declared tools."""
    head = _TOOL.match(text, at)
    tool = setting.box.find(head["name"]) if head is not None else None
    if head is None or tool is None:
        return None
    found = Arguments(tool)
    at = head.end()
    for attribute in _match_all(_ATTRIBUTE, text, at):
        found.add(attribute["key"], attribute["value"], at)
        at = attribute.end()
    end = _TOOL_END.match(text, skip_space(text, at))
    if end is None:
        raise Unreadable("an attribute that can't be read", at)
    return Found(
        [record_repairs(RawCall(name=tool.name, arguments=found.found, format=setting.format), found.kinds)], end.end()
    )


def _match_all(expression: re.Pattern[str], text: str, at: int) -> Iterator[re.Match[str]]:
    """Yield every match in an unbroken row."""
    while (match := expression.match(text, at)) is not None:
        yield match
        at = match.end()
