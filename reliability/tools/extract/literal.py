"""Values as models write them: JSON first, then the literals of Python and JavaScript that spell one JSON value.

Strict JSON is read with the standard decoder; only where that fails, by these rules, each with one reading:

    'single' quotes, (tuples), True/False/None, a comma before the end, 1_000, .5, comments, {bare: keys}
    a raw line break inside a string; a backslash that begins no escape ("\\d"), which stays a backslash

JSON has no "\\x41" and no "\\U0001F600": there they are the escapes of a program, a pattern or a path that the model
copied without doubling the backslash, and stay as written. Behind a string in single quotes the text is Python's or
JavaScript's, and they are read.

What has two readings is `Unreadable`, never guessed: an unquoted value, a missing comma or quote, an expression (5*11),
adjacent strings, NaN, a number with a leading zero or beyond a double, a key given twice with two values, an ellipsis,
and a string that mixes lone backslashes with true escapes ("C:\\dir\\new"). Depth and size are bounded.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from reliability.tool_calls import RepairKind

DEPTH_MAX = 64
VALUES_MAX = 100_000
_WINDOW_CHARS = 65_536
_CODE_POINT_MAX = 0x10FFFF
_STACK_CHARS = 4_000  # what a reading that went too deep has cost, beside its characters

_SPACE = re.compile(r"(?:[ \t\r\n]+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/|(?://|\#)[^\n]*+(?:\n|\Z))*+")
_BLANK = re.compile(r"[ \t\r\n]*+")
_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"|' r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL)
_TRIPLE = re.compile(r'"""((?:[^"\\]|\\.|"(?!""))*+)"""|' r"'''((?:[^'\\]|\\.|'(?!''))*+)'''", re.DOTALL)
_NUMBER = re.compile(r"-?(?:(?:0|[1-9]\d*+(?:_\d++)*+)(?:\.(?:\d++(?:_\d++)*+)?)?|\.\d++)(?:[eE][+-]?\d++)?", re.ASCII)
_MANTISSA = re.compile(r"\A[-._0]*+[1-9]")  # of a number that is none of the zeros
_AFTER_NUMBER = re.compile(r"[ \t\r\n]*+(?:[,\]})]|\Z|/\*|\#|<)")
_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+")
_INDEX = re.compile(r"(?:0|[1-9]\d{0,17})(?=\s*:)", re.ASCII)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")

_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_SELF = frozenset("\"'/")
_OPEN_MEANING = frozenset("0123456789avN\n")  # escapes of some languages and not of others
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "None"), None),
}


class Unreadable(ValueError):
    """No value that can be read without loss. `at` is the place where reading ended."""

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at


@dataclass(frozen=True, slots=True)
class Value:
    """A value read from a text: where it ends, what was repaired, and whether its outermost object or array
    lacks its last bracket."""

    value: Any
    end: int
    repair_kinds: tuple[RepairKind, ...] = ()
    unclosed: bool = False


def read(text: str, start: int = 0, *, ends: re.Pattern[str] | None = None, python: bool = False) -> Value:
    """Read the value that begins at `start`, or raise `Unreadable`. `python`: triple-quoted strings are read too."""
    place = _BLANK.match(text, start)
    at = place.end() if place else start
    if not python:
        try:
            value, end = _read_strict(text, at)
            _check_depth(value, text, at, end)
            return Value(value, end)
        except RecursionError:
            raise Unreadable("nested too deeply", at + _STACK_CHARS) from None
        except ValueError:
            pass
    reader = _Reader(text, ends, python)
    value, end = reader.read_value(at, 0)
    return Value(value, end, tuple(dict.fromkeys(reader.repair_kinds)), reader.unclosed)


def dump(value: object) -> str:
    """Write a value as JSON text; readable, unless a lone surrogate must be spelled out to survive the wire."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return json.dumps(value, allow_nan=False) if _SURROGATE.search(text) else text


def _read_strict(text: str, at: int) -> tuple[Any, int]:
    """Read strict JSON. A window is tried first: the decoder's errors count the lines of all they are given."""
    part = text[at : at + _WINDOW_CHARS]
    cut = len(part) < len(text) - at
    try:
        value, end = _DECODER.raw_decode(part)
    except json.JSONDecodeError as error:
        if not cut or not (error.msg.startswith("Unterminated") or error.pos > _WINDOW_CHARS - 16):
            raise
    else:
        if not cut or end < len(part):
            return value, at + end
    return _DECODER.raw_decode(text, at)


def _check_depth(value: object, text: str, at: int, end: int) -> None:
    """Refuse what is nested too deeply; texts with few brackets can't be."""
    if text.count("{", at, end) + text.count("[", at, end) <= DEPTH_MAX:
        return
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [inner for outer in level for inner in _list_inner(outer)]
        if not level:
            return
    raise Unreadable("nested too deeply", end)


def _list_inner(value: object) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _parse_finite(text: str) -> float:
    number = float(text)
    if math.isinf(number) or (number == 0 and _MANTISSA.search(text)):
        raise Unreadable("a number beyond what a double holds", 0)
    return number


def _refuse(word: str) -> NoReturn:
    raise Unreadable(f"{word} is no JSON", 0)


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object, unless a key is given twice with two values: one of them would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs) and any(dump(found[key]) != dump(value) for key, value in pairs):
        raise Unreadable("a key is given twice with different values", 0)
    return found


_DECODER = json.JSONDecoder(parse_float=_parse_finite, parse_constant=_refuse, object_pairs_hook=_build_object)


class _Reader:
    def __init__(self, text: str, ends: re.Pattern[str] | None, python: bool) -> None:
        self.text = text
        self.ends = ends
        self.python = python
        self.repair_kinds: list[RepairKind] = []
        self.unclosed = False
        self._values = 0
        self._single = python  # True where strings stand in the quotes of Python

    def read_value(self, at: int, depth: int) -> tuple[Any, int]:
        self._values += 1
        if depth > DEPTH_MAX or self._values > VALUES_MAX:
            raise Unreadable("nested too deeply, or too many values", at + _STACK_CHARS)
        head = self.text[at : at + 1]
        if head == "{":
            return self._read_object(at + 1, depth + 1)
        if head == "[":
            return self._read_items(at + 1, "]", depth + 1)[:2]
        if head == "(":  # a tuple is an array; one value in parentheses is that value
            items, end, comma = self._read_items(at + 1, ")", depth + 1)
            self.repair_kinds.append(RepairKind.LITERAL)
            return (items[0] if len(items) == 1 and not comma else items), end
        if head and head in "\"'":
            return self._read_string(at)
        return self._read_scalar(at)

    def _skip_space(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        end = match.end() if match else at
        if self.text.startswith("/*", end):
            raise Unreadable("a comment without an end", len(self.text))
        blank = _BLANK.match(self.text, at)
        if blank and blank.end() < end:
            self.repair_kinds.append(RepairKind.LITERAL)
        return end

    def _read_object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        pairs: list[tuple[str, Any]] = []
        at = self._skip_space(at)
        while self.text[at : at + 1] != "}":
            key, at = self._read_key(at)
            at = self._skip_space(at)
            if self.text[at : at + 1] != ":":
                raise Unreadable("a colon was expected", at)
            value, at = self.read_value(self._skip_space(at + 1), depth)
            pairs.append((key, value))
            at = self._skip_space(at)
            if depth == 1 and self._is_at_end(at):
                self.unclosed = True
                return _build_object(pairs), at
            at = self._skip_comma(at, "}")
        return _build_object(pairs), at + 1

    def _is_at_end(self, at: int) -> bool:
        return self.ends is not None and (at == len(self.text) or self.ends.match(self.text, at) is not None)

    def _skip_comma(self, at: int, close: str) -> int:
        if self.text[at : at + 1] == close:
            return at
        if self.text[at : at + 1] != ",":
            raise Unreadable(f"a comma or {close} was expected", at)
        at = self._skip_space(at + 1)
        if self.text[at : at + 1] == close:
            self.repair_kinds.append(RepairKind.LITERAL)
        return at

    def _read_items(self, at: int, close: str, depth: int) -> tuple[list[Any], int, bool]:
        """Read the items up to a closing bracket, and whether a comma stood after the last one."""
        items: list[Any] = []
        comma = False
        at = self._skip_space(at)
        while self.text[at : at + 1] != close:
            value, at = self.read_value(at, depth)
            items.append(value)
            before = at = self._skip_space(at)
            if depth == 1 and close == "]" and self._is_at_end(at):
                self.unclosed = True
                return items, at, False
            at = self._skip_comma(at, close)
            comma = at > before
        return items, at + 1, comma

    def _read_key(self, at: int) -> tuple[str, int]:
        if self.text[at : at + 1] in ('"', "'"):
            key, end = self._read_string(at)
            if _CONTROL.search(self.text, at, end):
                raise Unreadable("a line break inside a key", at)
            return key, end
        match = _WORD.match(self.text, at) or _INDEX.match(self.text, at)
        if match is None:
            raise Unreadable("a key was expected", at)
        self.repair_kinds.append(RepairKind.LITERAL)
        return match[0], match.end()

    def _read_string(self, at: int) -> tuple[str, int]:
        match = (_TRIPLE.match(self.text, at) if self.python else None) or _STRING.match(self.text, at)
        if match is None:
            raise Unreadable("a string without an end", len(self.text))
        double = match[1] is not None
        body = match[1] if double else match[2]
        self._single = self._single or not double
        if not double or match.re is _TRIPLE:
            self.repair_kinds.append(RepairKind.LITERAL)
        elif _CONTROL.search(body):
            self.repair_kinds.append(RepairKind.ESCAPE)
        return (self._unescape(body, at) if "\\" in body else body), match.end()

    def _unescape(self, body: str, at: int) -> str:
        """Return the string behind its escapes. Lone backslashes stay, where that leaves no doubt."""
        escapes = _ESCAPE.findall(body)
        lone = {e for e in escapes if len(e) == 1 and e not in _PLAIN and e not in _SELF and e != "\\"}
        lone |= set() if self._single else {e for e in escapes if len(e) > 1 and e[0] in "xU"}
        if lone:
            if lone & _OPEN_MEANING or not all(e in lone or e in _SELF for e in escapes):
                raise Unreadable("a string mixes lone backslashes with escapes", at)
            self.repair_kinds.append(RepairKind.ESCAPE)
        elif any(e[0] in "xU" or e == "'" for e in escapes):
            self.repair_kinds.append(RepairKind.LITERAL)
        text = _ESCAPE.sub(lambda match: match[0] if match[1] in lone else _decode_escape(match), body)
        if _SURROGATE.search(text):
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return text

    def _read_scalar(self, at: int) -> tuple[Any, int]:
        match = _WORD.match(self.text, at)
        if match is not None:
            if match[0] not in _WORDS:
                raise Unreadable("a value without quotes", at)
            if match[0] not in ("true", "false", "null"):
                self.repair_kinds.append(RepairKind.LITERAL)
            return _WORDS[match[0]], match.end()
        match = _NUMBER.match(self.text, at)
        if match is None or not _AFTER_NUMBER.match(self.text, match.end()):
            raise Unreadable("a value was expected", at)
        return self._parse_number(match[0], at), match.end()

    def _parse_number(self, text: str, at: int) -> int | float:
        if "_" in text or "-." in text or text[0] == "." or text[-1] == "." or ".e" in text.lower():
            self.repair_kinds.append(RepairKind.LITERAL)
        try:
            return _parse_finite(text) if set(text) & set(".eE") else int(text)
        except ValueError as error:
            raise Unreadable(getattr(error, "reason", "a number with too many digits"), at) from None


def _decode_escape(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        number = int(code[1:], 16)
        if number > _CODE_POINT_MAX:
            raise Unreadable("an escape beyond Unicode", match.start())
        return chr(number)
    return _PLAIN.get(code, code)
