"""The parameters of one call while they are read: bare texts, and the values that they stand for.

Bare text has no type, so the tool's schema gives it one: where a string is allowed the text is the value, to the
letter; where it isn't, the text is read as a literal, and left as it is where that fails, for the check to refuse.
"""

from __future__ import annotations

from typing import Any

from reliability.tool_calls import RepairKind
from reliability.tools.extract.literal import Unreadable, read
from reliability.tools.schema.toolbox import Tool
from reliability.tools.schema.types_allowed import find_allowed_types, property_schema

__all__ = ["Arguments", "strip_framing", "type_text"]


def strip_framing(text: str) -> str:
    """Strip the framing of a parameter's text: a line break at each end, or a CDATA section. A text that stands on the
    line of only one of its tags has no framing: its line breaks are its own."""
    for line_break in ("\r\n", "\n"):
        if text.startswith(line_break):
            ends = len(text) >= 2 * len(line_break) and text.endswith(line_break)
            text = text[len(line_break) : -len(line_break)] if ends else text
            break
    if text.startswith("<![CDATA[") and text.endswith("]]>"):
        return text[9:-3]
    return text


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
        """Take one parameter. `is_string`: what the model itself says of it, None where it says nothing."""
        if key in self.found:
            raise Unreadable("a parameter is given twice", at)
        literal = _read_literal(text) if is_string is False else None
        self.found[key], kinds = literal or self._type(key, text)
        self.kinds += kinds

    def _type(self, key: str, text: str) -> tuple[Any, tuple[RepairKind, ...]]:
        if self.tool is None:
            return text, ()
        root = self.tool.parameters
        schema = property_schema(root, root, key)
        # An unknown property may be anything: a string.
        return (text, ()) if schema is None else type_text(text, schema, root)
