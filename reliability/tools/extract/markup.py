"""Calls written as tags.

Bare text gets its type from the tool's schema (`text.py`). A tag of a declared name is a call where every child is one
of its parameters and none that it requires is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rapidfuzz import fuzz

from reliability.tool_calls import RepairKind
from reliability.tools.extract.literal import Unreadable
from reliability.tools.extract.payloads import Found, build_found, read_object, skip_space
from reliability.tools.extract.shapes import HalfCall, Setting
from reliability.tools.extract.text import Arguments, type_text
from reliability.tools.format_row import DSML, M3_TOKEN, NAME, Reader
from reliability.tools.formats import CLOSER, OPENER, compile_closers
from reliability.tools.schema.references import Places
from reliability.tools.schema.toolbox import Tool

DEPTH_MAX = 32
_TAIL_CHARS = 64  # of a parameter's text, looked through for its damaged closing tag
_MARK_CHARS = 16  # from the first sign of a closing tag to its name
_NEARLY = 80  # percent of two words that must be alike for one to be meant by the other

_CLOSING_WORDS = ("parameter", "parameters", "param", "function", "invoke")
_LAST_WORD = re.compile(r"(?P<word>[A-Za-z_][\w.-]{2,})(?:\s*=[\s\"']*[\w.-]+)?\W*\Z")
_SIGNS = re.compile(r"[<>\[\]]")
_CUT = re.compile(r"<\s*[/\\]?\s*\Z")

M3 = re.compile(M3_TOKEN)
_M3_DAMAGED = re.compile(r"\]minimax|minimax\[>")
_M3_OPEN = re.compile(rf"{M3_TOKEN}\s*<(?P<key>[^<>/\s][^<>\s]{{0,127}})>")
_TAG_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}+"
_OPEN = re.compile(rf"<(?P<name>{_TAG_NAME})\s{{0,8}}(?P<empty>/?)>")
_JSON_OBJECT = re.compile(r"\{\s{0,64}\"")
_CHILD = re.compile(r"<(?P<key>[A-Za-z_][\w.-]{0,127})>")
_BEGUN = re.compile(rf"<{_TAG_NAME}\s{{0,8}}/?>\s*(?:<(?:[A-Za-z_][\w.-]{{0,127}})?)?\Z")
_NAME_TAG = re.compile(rf"<(?P<tag>name|tool_name|function_name|tool)>\s*(?P<name>{NAME})\s*</(?P=tag)>\s*")
_ARGUMENTS_TAG = re.compile(r"<(?P<tag>arguments|parameters|args|params|input)>\s*(?=\{)")
_SPACE = rf"(?:\w{{1,32}}:|{DSML})?"
_M3 = rf"(?:{M3_TOKEN}\s{{0,8}})?"
_HEAD = re.compile(
    rf"(?P<m3>{_M3})<(?P<space>{_SPACE})(?P<tag>function|invoke)(?:=\s*[\"']?(?P<bare>{NAME})[\"']?|\s{{0,8}}name\s*=\s*[\"']?(?P<quoted>{NAME})[\"']?)"
    r"(?:\s*>|[=, ]{0,2}(?=\{))"
)
_PARAMETER = re.compile(
    rf"(?P<m3>{_M3})<(?P<space>{_SPACE})(?P<tag>param(?:eter)?)(?:=\s*[\"']?(?P<bare>[^<>\"'\s]{{1,128}})[\"']?|\s{{0,8}}name\s*=\s*(?:[\"'](?P<quoted>[^<>\"']{{1,128}})[\"']|(?P<plain>[^<>\"'\s]{{1,128}})))"
    r"(?:\s+string=[\"'](?P<string>true|false)[\"'])?(?:\s+[\w-]{1,32}=[\"'][^<>\"']{0,64}[\"'])*+\s*>"
)
_SIGN = re.compile(rf"<(?P<slash>/)?(?P<space>{_SPACE})(?P<tag>param(?:eter)?|function|invoke)(?(slash)>|(?=\W|name))")
_M3_SIGN = re.compile(_M3 + _SIGN.pattern)
_ELEMENT = re.compile(r"<[^<>]*+(?<!/)>")
_LAST_LINE = re.compile(r"\n[^\n]*+\s*+\Z")
_CALL_TAGS = ("function", "invoke")
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


class _Signs(NamedTuple):
    """The tags behind a parameter's opening tag: where the call's closing tag stands before the next of the others,
    whether that opens a parameter, or closes this one; whether the text holds another tag of a parameter."""

    call_end: int | None
    opens: bool
    closed: re.Match[str] | None
    holds_tag: bool


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
    if _JSON_OBJECT.match(text, at):
        return _read_json_child(text, at, tool, f"</{head['name']}>", setting)
    while (child := _CHILD.match(text, at)) is not None:
        if tool.places.find_member(tool.parameters, child["key"]) is None:
            if not found.found:
                return None
            raise HalfCall("a tag that is no parameter stands between the parameters", at)
        closing = f"</{child['key']}>"
        end = text.find(closing, child.end())
        if end < 0 or text.find(f"</{head['name']}>", child.end(), end) >= 0:
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
    return build_found(tool.name, found.found, setting, at + len(closing), found.kinds)


def _read_json_child(text: str, at: int, tool: Tool, closing: str, setting: Setting) -> Found | None:
    """Read an object of the tool's own parameters that is all that its tag holds."""
    value = read_object(text, at)
    if not value.value.keys() <= tool.parameters.get("properties", {}).keys():
        return None
    end = skip_space(text, value.end)
    if not text.startswith(closing, end):
        raise HalfCall("the closing tag of the call is missing", end)
    return build_found(tool.name, value.value, setting, end + len(closing), value.repair_kinds)


def _build_empty(tool: Tool, end: int, setting: Setting) -> Found | None:
    return build_found(tool.name, {}, setting, end) if tool.takes_nothing else None


def _read_m3_children(text: str, at: int, tool: Tool | None) -> tuple[Arguments, int]:
    """Read the parameters that stand here, each behind the token of MiniMax M3."""
    found, places = Arguments(tool), tool.places if tool else Places({})
    while (opened := _M3_OPEN.match(text, at)) is not None:
        if opened["key"] in found.found:
            raise Unreadable("a parameter is given twice", at)
        schema = places.find_member(places.root, opened["key"])
        found.found[opened["key"]], at = _read_m3_value(text, opened, schema, places, found.kinds)
        at = skip_space(text, at)
    return found, at


def _read_m3_value(
    text: str, opened: re.Match[str], schema: Any, places: Places, kinds: list[RepairKind], depth: int = 0
) -> tuple[Any, int]:
    """Read what stands in one tag, and the place behind its closing tag; add what was repaired to `kinds`."""
    if depth > DEPTH_MAX:
        raise Unreadable("nested too deeply", opened.end())
    closing, start = f"</{opened['key']}>", opened.end()
    token = M3.search(text, start)
    if token is None:
        raise Unreadable("a parameter without an end", len(text))
    place = skip_space(text, token.end())
    lone = -1 if text.startswith(closing, place) else text.find(closing, start, token.start())
    if lone >= 0:  # its closing tag lacks the token
        kinds.append(RepairKind.ENVELOPE)
    if lone >= 0 or text.startswith(closing, place):
        end, behind = (lone, lone) if lone >= 0 else (token.start(), place)
        if _M3_DAMAGED.search(text, start, end):
            raise Unreadable("a parameter that holds a part of this format's own token", start)
        value, repaired = type_text(text[start:end], schema, places)
        kinds += repaired
        return value, behind + len(closing)
    if text[start : token.start()].strip():
        raise Unreadable("text and tags in one parameter", start)
    return _read_m3_members(text, token.start(), closing, schema, places, kinds, depth)


def _read_m3_members(
    text: str, at: int, closing: str, schema: Any, places: Places, kinds: list[RepairKind], depth: int
) -> tuple[Any, int]:
    """Read the members of an object, or the items of an array, up to the closing tag around them."""
    allowed = places.find_types(schema)
    pairs: list[tuple[str, Any]] = []
    while (child := _M3_OPEN.match(text, at)) is not None:
        inner = places.find_member(schema, child["key"])
        if inner is None and isinstance(schema, Mapping):
            inner = schema.get("items")
        value, at = _read_m3_value(text, child, inner, places, kinds, depth + 1)
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
    value = read_object(text, opened.end())
    closing, end = f"</{opened['tag']}>", skip_space(text, value.end)
    kinds = list(value.repair_kinds)
    if text.startswith(closing, end):
        end += len(closing)
    else:
        kinds.append(RepairKind.ENVELOPE)
    return build_found(head["name"], value.value, setting, end, kinds)


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
        value = read_object(text, at)
        end, kinds = _find_end(text, skip_space(text, value.end), list(value.repair_kinds), complete=True)
        return build_found(name, value.value, setting, end, kinds)
    tool = setting.box.find(name)
    arguments, at = _read_parameters(text, at, tool, head, namespaced=":" in setting.format)
    if not arguments.found and head["m3"]:
        arguments, at = _read_m3_children(text, at, tool)
    end, kinds = _find_end(text, at, arguments.kinds, complete=False)
    return build_found(name, arguments.found, setting, end, kinds)


def _find_end(text: str, at: int, kinds: list[RepairKind], *, complete: bool) -> tuple[int, list[RepairKind]]:
    """Find the place after the call's closing tag. `complete`: the arguments have an end of their own."""
    close = _FUNCTION_END.match(text, at)
    if close is not None:
        return close.end(), kinds
    if CLOSER.match(text, at) or (complete and skip_space(text, at) == len(text)):
        return at, [*kinds, RepairKind.ENVELOPE]
    raise Unreadable("the closing tag of the call is missing", at)


def _read_parameters(
    text: str, at: int, tool: Tool | None, head: re.Match[str], *, namespaced: bool
) -> tuple[Arguments, int]:
    """Read the parameters that stand here, behind the head of their call. `namespaced`: in an envelope whose template
    writes texts on the lines of their tags; there, and where another one of the call stands so, a line break may be the
    text's."""
    found, on_lines, inline = Arguments(tool), False, namespaced
    spelled = set()  # how the opening tags are: one of another spelling may be a text's own
    while (opened := _PARAMETER.match(text, at)) is not None:
        end, behind = _find_parameter_end(text, opened, head, found)
        spelled.add((_name(opened), opened["bare"] is None))
        is_string = None if opened["string"] is None else opened["string"] == "true"
        key = opened["bare"] or opened["quoted"] or opened["plain"]
        if is_string is None:
            found.add_framed(key, text, opened.end(), end, on_lines=opened["bare"] is not None and not namespaced)
            breaks = text.startswith(("\n", "\r\n"), opened.end())
            on_lines, inline = on_lines or breaks, inline or not breaks
        else:
            found.add(key, text[opened.end() : end], at, is_string)
        at = skip_space(text, behind)
    found.kinds += [RepairKind.LAYOUT] if on_lines and inline else []
    found.kinds += [RepairKind.ENVELOPE] if len(spelled) > 1 else []
    return found, at


def _find_parameter_end(text: str, opened: re.Match[str], head: re.Match[str], found: Arguments) -> tuple[int, int]:
    """Find where a parameter's text ends, and the place behind its closing tag, which may stand there twice; the last
    one's may be missing, where the call's own stands in its place. Tags of another spelling than its own are text,
    unless its own closing tag is missing."""
    call_end, opener, closed, holds_tag = _find_signs(text, opened, _name(head))
    if closed is None:
        own_end = call_end
        call_end, opener, closed, holds_tag = _find_signs(text, opened, None)
        found.kinds += [RepairKind.ENVELOPE] if closed else []
        call_end = call_end if closed else own_end  # one closing tag is damaged, not both
    bound = closed.start() if closed else len(text)
    if call_end is not None and closed is not None:
        if not _LAST_LINE.match(text, call_end - 1, bound) or not _FUNCTION_END.match(
            text, skip_space(text, closed.end())
        ):
            raise Unreadable("a parameter's closing tag is missing", bound)
    elif call_end is not None:
        if ends_like_a_closer(text[opened.end() : call_end], opened["bare"] or opened["quoted"] or opened["plain"]):
            raise Unreadable("a parameter's closing tag that can't be read", bound)
        found.kinds.append(RepairKind.ENVELOPE)
        return call_end, call_end
    if opener:
        raise Unreadable("a parameter's closing tag is missing", bound)
    if closed is None:
        raise Unreadable("a parameter without an end", len(text))
    end = closed.end()
    while (again := closed.re.match(text, skip_space(text, end))) is not None and again["slash"]:
        if again["tag"] in _CALL_TAGS:
            break
        if holds_tag or again[0] != closed[0]:
            raise Unreadable("a closing tag that may be the text's own", bound)
        found.kinds.append(RepairKind.ENVELOPE)
        end = again.end()
    return closed.start(), end


def _name(tag: re.Match[str]) -> str:
    """Return the name of a tag with its namespace or mark."""
    return tag["space"].strip(" |｜") + tag["tag"]


def _find_signs(text: str, opened: re.Match[str], call: str | None) -> _Signs:
    """Find the tags that may end a parameter's text, up to its closing tag or the next parameter. `call`: the name of
    the call's tag, where only the spelling of both counts, and what this text opens by the name of its own tag is
    closed in it; None: each spelling counts. One of a call before the beginning of another may be its own."""
    call_end, holds_tag, inside, own = None, False, 0, (_name(opened), opened["bare"] is None)
    for sign in (_M3_SIGN if opened["m3"] else _SIGN).finditer(text, opened.end()):
        name = _name(sign)
        if sign["tag"] in _CALL_TAGS:
            ends = call in (None, name) or OPENER.match(text, skip_space(text, sign.end())) is not None
            call_end = sign.start() if call_end is None and sign["slash"] and ends else call_end
        elif call is not None and name != own[0]:
            continue
        elif sign["slash"]:
            if not inside:
                return _Signs(call_end, False, sign, holds_tag)
            inside -= 1
        elif (opener := _PARAMETER.match(text, sign.start())) and (
            call is None or (name, opener["bare"] is None) == own
        ):
            return _Signs(call_end, True, None, holds_tag)
        else:
            holds_tag = True
            inside += call is not None and _ELEMENT.match(text, sign.start("space") - 1) is not None
    return _Signs(call_end, False, None, holds_tag)


def ends_like_a_closer(text: str, key: str) -> bool:
    """Return whether a parameter's text ends with what was meant to be its closing tag, which is missing."""
    tail = text[-_TAIL_CHARS:].rstrip()
    if _CUT.search(tail) is not None:
        return True
    last = _LAST_WORD.search(tail)
    if last is None or _SIGNS.search(tail, max(0, last.start() - _MARK_CHARS)) is None:
        return False
    word = last["word"].lower()
    return any(fuzz.ratio(word, name.lower()) >= _NEARLY for name in (*_CLOSING_WORDS, key))


def read_pairs(text: str, at: int, setting: Setting) -> Found | None:
    """Read `name`, then keys and values in turn; in an envelope a declared name may stand alone."""
    head = _PAIRS.match(text, at)
    if head is None and setting.explicit and (only := _ONLY_NAME.match(text, at)) is not None:
        known = setting.box.find(only["name"]) is not None and CLOSER.match(text, only.end()) is not None
        return build_found(only["name"], {}, setting, only.end()) if known else None
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
    return build_found(head["name"], found.found, setting, at, found.kinds)


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
    return build_found(tool.name, found.found, setting, end.end(), found.kinds)


def _match_all(expression: re.Pattern[str], text: str, at: int) -> Iterator[re.Match[str]]:
    while (match := expression.match(text, at)) is not None:
        yield match
        at = match.end()
