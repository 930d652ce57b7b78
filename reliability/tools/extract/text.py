"""JSON with text around it: what may be taken off without loss, and what is data and may not.

"Here are the arguments:", a fence, a remark, one brace too many: taking that off is lossless only while it holds no
data, which has brackets, quoted keys or an equals sign.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from reliability.tool_calls import RepairKind
from reliability.tools.extract.literal import Unreadable, Value, read
from reliability.tools.schema.references import Places
from reliability.tools.schema.toolbox import Tool

TEXT_CHARS_MAX = 4_000

_SPACE = " \t\r\n"
_FENCE_BEFORE = re.compile(r"`{3,}[\w-]{0,32}\s*\Z")
_FENCE_AFTER = re.compile(r"\s*`{3,}")
_STRAY = re.compile(r"[\s}\]>)]*+[.;,]?\s*\Z")
_DATA = re.compile(r"[{}\[\]\"=`]")
_LABEL = re.compile(r"[^\s:]++\s++[^\s:][^:]*+:\s*\Z|[^:]*+\Z")
_GIVEN = re.compile(r"(?<![\w-])(?P<key>[\w-]++)(?:\W{0,3}[:=]|[ \t]+(?=[\d\"'\[{-]|(?:true|false|null)\b))")
LINE_CHARS_MAX = 1024  # of a parameter's opening tag with its indentation
_BREAK = re.compile(r"\r?\n")
# What shows that a parameter's frame is damaged: a sign of its tags at an end of its key, or too many around its text.
_EDGE = re.compile(r"[\s\"',:;=/\\|<>(){}\[\]]")
_LONE_OPEN = re.compile(r"[<>=/|\"']{1,2}[ \t]*\r?\n")
_LONE_CLOSE = re.compile(r"\n[ \t]*<{1,2}[ \t]*\Z")
_TAIL_CHARS = 64
# Brackets of prose hold no value: `[a note]`, `{object}`, `[...]`, and `\boxed{` around one.
_BRACKETS = re.compile(
    r"(?P<prose>\\[a-z]{1,16}\{(?=\s*[{\[])"
    r"|[{\[]\s*(?!(?:true|false|null|none)\b)(?:[^\W\d]|\.)[^{}\[\]\"':\n]*[}\]])|[{}\[\]]",
    re.IGNORECASE,
)
_QUOTED, _LABELED = r"(?:\"[^\"\n]{0,128}\"|'[^'\n]{0,128}')", r"[^\w\n]{0,16}\w{1,64}[^\w\n]{0,16}[:=]"
# What may be a part of the document \0: what goes on behind it, a key with a value, its own key, lines of such keys.
_PART = re.compile(
    rf"\0(?:\s*[}}\])])*+(?:\s*,|[ \t]*[:'\"\d]|\s*(?:{_QUOTED}|\d\S*)\s*\Z)"
    rf"|{_QUOTED}\s{{0,8}}:\s{{0,8}}(?:[\"'\d-]|(?:true|false|null|none)\b)|(?<!\w ){_QUOTED}\s{{0,8}}:\s{{0,8}}\0"
    rf"|^{_LABELED}[^\n]*\n{_LABELED}\W{{0,16}}\0|^{_LABELED}\W{{0,16}}\0[^\n]*\n{_LABELED}"
    r"|^[^\w\n]{0,16}(?P<key>\w{1,64})[^\w\n]{0,16}[:=]\W{0,16}\0",
    re.IGNORECASE | re.MULTILINE,
)


def is_harmless_before(text: str, *, fenced: bool = False) -> bool:
    """Return whether this is prose in front of a value. `name: {` is a key, "Here is the answer: {" is not."""
    if len(text) > TEXT_CHARS_MAX or _DATA.search(text):
        return False
    return fenced or _LABEL.match(text) is not None


def is_harmless_after(text: str) -> bool:
    """Return whether this is prose, or brackets too many, behind a complete value."""
    if _STRAY.match(text):
        return True
    rest = text.lstrip(_SPACE + "}])")
    goes_on = rest[:1].isdigit() or rest[:1] in (",", ":", "'")
    return len(text) <= TEXT_CHARS_MAX and not goes_on and not _DATA.search(rest)


def holds_argument(text: str, tool: Tool | None, given: Any) -> bool:
    """Return whether a text behind the arguments of a call gives a declared one that they lack, with a value."""
    return tool is not None and _holds_member(text, tool.places, tool.parameters, given)


def _holds_member(text: str, places: Places, schema: Any, given: Any) -> bool:
    if not isinstance(given, Mapping) or len(text) > TEXT_CHARS_MAX:
        return False
    keys = {found["key"] for found in _GIVEN.finditer(text)} - given.keys()
    return any(places.find_member(schema, key) is not None for key in keys)


def find_object_end(text: str) -> int:
    """Find the place behind the object with which a text begins; 0 where it begins with none."""
    try:
        value = read(text)
    except Unreadable:
        return 0
    return value.end if isinstance(value.value, dict) else 0


def read_arguments(text: str) -> Value | str:
    """Read the one value in a text, or say why there is none. Nothing that looks like data is left out."""
    try:
        value = read(text)
        if not text[value.end :].strip(_SPACE):
            return value
    except Unreadable as bad:
        reason = bad.reason
    else:
        reason = "there is more than one value"
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    return reason if start < 0 else _read_surrounded(text, start, reason, _is_harmless)


def read_document(text: str, schema: Any) -> Value | str:
    """Read the one JSON document in a text that should be nothing else, or say why there is none. The text around it is
    prose, whatever it holds but other values, and what may be a part of this one (`Answer: {` is a label, no key)."""
    value = read_arguments(text)
    start, at, places = -1, 0, Places(schema)
    while isinstance(value, str) and (bracket := _BRACKETS.search(text, at)) is not None:
        at = bracket.end()
        if bracket["prose"]:
            continue
        if start >= 0:
            return value
        start = bracket.start()
        try:
            end = read(text, start).end
        except Unreadable as bad:
            return bad.reason
        at = len(text) - len(text[end:].lstrip(_SPACE + "}])"))

    def may_be_all(before: str, after: str, fenced: bool) -> bool:
        parts = _PART.finditer(before + ("\1" if fenced else "\0") + after)
        return all(part["key"] and places.find_member(schema, part["key"]) is None for part in parts)

    found = _read_surrounded(text, start, value, may_be_all) if isinstance(value, str) and start >= 0 else value
    if isinstance(found, str) or RepairKind.EXTRA_TEXT not in found.repair_kinds:
        return found
    behind = _holds_member(text.rpartition("}")[2], places, schema, found.value)
    return "a member stands behind the others" if behind else found


def _is_harmless(before: str, after: str, fenced: bool) -> bool:
    return is_harmless_before(before, fenced=fenced) and is_harmless_after(after)


def _read_surrounded(text: str, start: int, reason: str, is_harmless: Callable[[str, str, bool], bool]) -> Value | str:
    """Read the value at `start`, if only fences and prose stand around it."""
    try:
        value = read(text, start)
    except Unreadable as bad:
        return bad.reason
    kinds = list(value.repair_kinds)
    window = max(0, start - 64)
    fence = _FENCE_BEFORE.search(text, window, start)
    before = text[: fence.start() if fence else start]
    closing = _FENCE_AFTER.match(text, value.end)
    after = text[closing.end() if closing else value.end :]
    if fence or closing:
        kinds.append(RepairKind.FENCE)
    if before.strip(_SPACE) or after.strip(_SPACE):
        kinds.append(RepairKind.EXTRA_TEXT)
    if not is_harmless(before.strip(), after, fence is not None):
        return reason
    return replace(value, end=len(text), repair_kinds=tuple(dict.fromkeys(kinds)))


def _split_framing(text: str) -> tuple[str, str | None]:
    """Return a parameter's text without its layout (the line breaks behind and before its tags, or a CDATA section),
    and the indentation of a closing tag on a line of its own."""
    opened, indent = _BREAK.match(text), None
    if opened is not None:
        last = text.rfind(opened[0])
        rest = text[last + len(opened[0]) :]
        indent = None if rest.strip(" \t") else rest
        text = text[opened.end() : len(text) if indent is None else last]
    if text.startswith("<![CDATA[") and text.endswith("]]>"):
        text = text[9:-3]
    return text, indent


def _read_framed(text: str, at: int, end: int, *, on_lines: bool) -> tuple[str, tuple[RepairKind, ...]]:
    """Read the parameter's text from `at` to `end` without its layout, and what was repaired in it. `on_lines`: the
    template writes it on lines of its own. Raises `Unreadable`: the indentation, or the last line break, may be the
    layout's or the text's own."""
    opened = _BREAK.match(text, at, end)
    framed, indent = _split_framing(text[at:end])
    if opened is None:  # a CDATA section, or nothing but the text
        return framed, (RepairKind.LAYOUT,) if len(framed) < end - at else ()
    if opened[0] == "\n" and indent is not None and framed.endswith("\r"):
        raise Unreadable("a line break that may be half the text's own and half the layout's", end)
    line = text.rfind("\n", max(0, at - LINE_CHARS_MAX), at) + 1
    if indent and text.startswith(f"{indent}<", line):
        lines = [one for one in framed.split("\n") if one.strip()]
        if lines and all(one.startswith(indent) for one in lines):
            if "\n" in framed.strip():
                raise Unreadable("an indented text: the indentation may be its own or the layout's", at)
            framed = framed.lstrip(" \t")
    expected = on_lines and indent == "" and opened[0] == "\n" and end - opened.end() == len(framed) + 1
    return framed, () if expected else (RepairKind.LAYOUT,)


def type_text(text: str, schema: Any, places: Places) -> tuple[Any, tuple[RepairKind, ...]]:
    """Return the value that a bare text stands for by its schema, and what was repaired in it."""
    may_be = schema is not None and _may_be_literal(text, schema, places.find_types(schema))
    return (read_literal(text) if may_be else None) or (text, ())


def _may_be_literal(text: str, schema: Any, kinds: frozenset[str] | None) -> bool:
    """Return whether a text stands for more than itself: no string is allowed, a choice has null and not the word, or a
    schema without a type tells of what the text begins like."""
    if kinds is not None and "string" not in kinds:
        return True
    if not isinstance(schema, Mapping):
        return False
    if text.strip() in ("null", "None"):
        choices = schema.get("enum", ())
        is_null = text == "null" and kinds is not None and "null" in kinds  # its form has no other way to write null
        return (is_null or None in choices) and text.strip() not in choices
    begins = [sign for key, sign in (("properties", "{"), ("items", "[")) if key in schema]
    return kinds is None and text.lstrip()[:1] in begins


def read_literal(text: str) -> tuple[Any, tuple[RepairKind, ...]] | None:
    """Read the value that all of a text is, and what was repaired in it; None where it is none."""
    try:
        value = read(text)
    except Unreadable:
        return None
    return None if text[value.end :].strip() else (value.value, value.repair_kinds)


def is_damaged_key(key: str) -> bool:
    """Return whether a key that no tool declares begins or ends with a sign of its frame."""
    return _EDGE.match(key[:1]) is not None or _EDGE.match(key[-1:]) is not None


class Arguments:
    """The parameters of one call while they are read: no key twice, every value typed."""

    def __init__(self, tool: Tool | None) -> None:
        self.tool = tool
        self.found: dict[str, Any] = {}
        self.kinds: list[RepairKind] = []

    def add(self, key: str, text: str, at: int, is_string: bool | None = None) -> None:
        """Take one parameter whose text has no layout. `is_string`: what the model says of it, None: nothing."""
        if key in self.found:
            raise Unreadable("a parameter is given twice", at)
        places = self.tool.places if self.tool is not None else Places({})
        schema = places.find_member(places.root, key)
        if schema is None and is_damaged_key(key):
            raise Unreadable("a parameter's name holds signs of its tag", at)
        if is_string and text == "null" and "string" in (places.find_types(schema) or ("string",)):
            literal: tuple[Any, tuple[RepairKind, ...]] | None = (text, ())
        else:
            literal = read_literal(text) if is_string is False else None
        self.found[key], kinds = literal or type_text(text, schema, places)  # an unknown one is a string
        self.kinds += kinds

    def add_framed(self, key: str, text: str, at: int, end: int, *, on_lines: bool) -> None:
        """Take one parameter whose text stands from `at` to `end`, as `_read_framed` reads it."""
        if on_lines and (_LONE_OPEN.match(text, at, end) or _LONE_CLOSE.search(text[at:end][-_TAIL_CHARS:])):
            raise Unreadable("a sign too many of a parameter's tag", at)
        framed, kinds = _read_framed(text, at, end, on_lines=on_lines)
        self.add(key, framed, at)
        self.kinds += kinds
