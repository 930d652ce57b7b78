"""The parameters of one call while they are read: bare texts, and the values that they stand for.

Bare text has no type, so the tool's schema gives it one: where a string is allowed the text is the value, to the
letter; where it isn't, the text is read as a literal, and left as it is where that fails, for the check to refuse.
"""

from __future__ import annotations

import re
from typing import Any

from reliability.tool_calls import RepairKind
from reliability.tools.extract.literal import Unreadable, read
from reliability.tools.schema.references import find_allowed_types, property_schema
from reliability.tools.schema.toolbox import Tool

LINE_CHARS_MAX = 1024  # of a parameter's opening tag with its indentation
_BREAK = re.compile(r"\r?\n")


def _split_framing(text: str) -> tuple[str, str | None]:
    """Return a parameter's text without its layout, and the indentation of a closing tag on a line of its own. Layout:
    the line break behind the opening tag, then the one before the closing tag with its indentation; or a CDATA section.
    Where the text begins on the line of its opening tag, every line break is its own."""
    opened, indent = _BREAK.match(text), None
    if opened is not None:
        last = text.rfind(opened[0])
        rest = text[last + len(opened[0]) :]
        indent = None if rest.strip(" \t") else rest
        text = text[opened.end() : len(text) if indent is None else last]
    if text.startswith("<![CDATA[") and text.endswith("]]>"):
        text = text[9:-3]
    return text, indent


def read_framed(text: str, at: int, end: int, *, on_lines: bool) -> tuple[str, tuple[RepairKind, ...]]:
    """Read the parameter's text from `at` to `end` without its layout, and what was repaired in it. `on_lines`: the
    template writes the text on lines of its own, so that one line break at each end is no repair.

    Raises:
        Unreadable: tags and lines are indented, and the indentation may be the layout's or the text's own.
    """
    opened = _BREAK.match(text, at, end)
    framed, indent = _split_framing(text[at:end])
    if opened is None:  # a CDATA section, or nothing but the text
        return framed, (RepairKind.LAYOUT,) if len(framed) < end - at else ()
    line = text.rfind("\n", max(0, at - LINE_CHARS_MAX), at) + 1
    if indent and text.startswith(f"{indent}<", line) and _is_indented(framed, indent):
        if "\n" in framed.strip():
            raise Unreadable("an indented text: the indentation may be its own or the layout's", at)
        framed = framed.lstrip(" \t")
    expected = on_lines and indent == "" and opened[0] == "\n" and end - opened.end() == len(framed) + 1
    return framed, () if expected else (RepairKind.LAYOUT,)


def _is_indented(text: str, indent: str) -> bool:
    """Return whether each line that isn't blank begins with this indentation."""
    lines = [line for line in text.split("\n") if line.strip()]
    return bool(lines) and all(line.startswith(indent) for line in lines)


def type_text(text: str, schema: Any, root: Any) -> tuple[Any, tuple[RepairKind, ...]]:
    """Return the value that a bare text stands for by its schema, and what was repaired in it."""
    if schema is None:
        return text, ()
    kinds = find_allowed_types(schema, root)
    if kinds is None or "string" in kinds:
        return text, ()
    return _read_literal(text) or (text, ())


def _read_literal(text: str) -> tuple[Any, tuple[RepairKind, ...]] | None:
    try:
        value = read(text)
    except Unreadable:
        return None
    return None if text[value.end :].strip() else (value.value, value.repair_kinds)


class Arguments:
    """The parameters of one call while they are read: no key twice, every value typed."""

    def __init__(self, tool: Tool | None) -> None:
        self.tool = tool
        self.found: dict[str, Any] = {}
        self.kinds: list[RepairKind] = []

    def add(self, key: str, text: str, at: int, is_string: bool | None = None) -> None:
        """Take one parameter whose text has no layout. `is_string`: what the model itself says of it, None where it
        says nothing."""
        if key in self.found:
            raise Unreadable("a parameter is given twice", at)
        literal = _read_literal(text) if is_string is False else None
        self.found[key], kinds = literal or self._type(key, text)
        self.kinds += kinds

    def add_framed(self, key: str, text: str, at: int, end: int, *, on_lines: bool) -> None:
        """Take one parameter whose text stands from `at` to `end`, as `read_framed` reads it."""
        framed, kinds = read_framed(text, at, end, on_lines=on_lines)
        self.add(key, framed, at)
        self.kinds += kinds

    def _type(self, key: str, text: str) -> tuple[Any, tuple[RepairKind, ...]]:
        if self.tool is None:
            return text, ()
        root = self.tool.parameters
        schema = property_schema(root, root, key)
        # An unknown property may be anything: a string.
        return (text, ()) if schema is None else type_text(text, schema, root)
