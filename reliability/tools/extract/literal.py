"""Values as models write them: JSON first, then the literals of Python and JavaScript that spell one JSON
value and no other.

`read` takes a text and a place, and gives the value that begins there, where it ends, and what had to be
mended. It reads strict JSON with the standard decoder; only where that fails it reads again, by the rules
below. Each of them has one reading:

    'single' quotes, (tuples), True/False/None, a comma before the end, 1_000, .5, comments, {bare: keys}
    a raw line break inside a string; a backslash that begins no escape ("\\d"), which stays a backslash

What has two readings is `Unreadable`, never guessed: an unquoted value, a missing comma or quote, an
expression (5*11), adjacent strings, NaN, a number with a leading zero or beyond a double, a key given twice
with two values, an ellipsis, and a string that mixes lone backslashes with true escapes ("C:\\dir\\new").

An outermost object may lack its last brace where the caller says what may follow it (`ends`); the caller
decides what that is worth.

Depth and the number of values are bounded, so that neither the reader nor anything after it can run out of
stack.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from reliability.tool_calls import RepairKind

__all__ = ["DEPTH_MAX", "Unreadable", "Value", "dump", "read"]

DEPTH_MAX = 64
VALUES_MAX = 100_000
WINDOW_CHARS = 65_536
CODE_POINT_MAX = 0x10FFFF
# What a reading that went too deep has cost, beside its characters: 0.2 to 0.4 ms (2 vCPU AMD EPYC, 2026-11-23).
STACK_CHARS = 4_000

_SPACE = re.compile(r"(?:[ \t\r\n]+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/|(?://|\#)[^\n]*+(?:\n|\Z))*+")
_BLANK = re.compile(r"[ \t\r\n]*+")
_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"|' r"'([^'\\]*+(?:\\.[^'\\]*+)*+)'", re.DOTALL)
_TRIPLE = re.compile(r'"""((?:[^"\\]|\\.|"(?!""))*+)"""|' r"'''((?:[^'\\]|\\.|'(?!''))*+)'''", re.DOTALL)
_NUMBER = re.compile(r"-?(?:(?:0|[1-9]\d*+(?:_\d++)*+)(?:\.(?:\d++(?:_\d++)*+)?)?|\.\d++)(?:[eE][+-]?\d++)?", re.ASCII)
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
    """A value read from a text: where it ends, what was mended, and whether its outermost object lacks its
    last brace."""

    value: Any
    end: int
    mended: tuple[RepairKind, ...] = ()
    unclosed: bool = False


def read(text: str, start: int = 0, *, ends: re.Pattern[str] | None = None, python: bool = False) -> Value:
    """The value that begins at `start`, or `Unreadable`. `python`: triple-quoted strings are read too."""
    place = _BLANK.match(text, start)
    at = place.end() if place else start
    if not python:
        try:
            value, end = _strict(text, at)
            _bounded(value, text, at, end)
            return Value(value, end)
        except RecursionError:
            raise Unreadable("nested too deeply", at + STACK_CHARS) from None
        except ValueError:
            pass
    reader = _Reader(text, ends, python)
    value, end = reader.value(at, 0)
    return Value(value, end, tuple(dict.fromkeys(reader.mended)), reader.unclosed)


def dump(value: object) -> str:
    """JSON text of a value; readable, unless a lone surrogate must be spelled out to survive the wire."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return json.dumps(value, allow_nan=False) if _SURROGATE.search(text) else text


def _strict(text: str, at: int) -> tuple[Any, int]:
    """Strict JSON. A window is tried first: the decoder's errors count the lines of all they are given."""
    part = text[at : at + WINDOW_CHARS]
    cut = len(part) < len(text) - at
    try:
        value, end = _DECODER.raw_decode(part)
    except json.JSONDecodeError as error:
        if not cut or not (error.msg.startswith("Unterminated") or error.pos > WINDOW_CHARS - 16):
            raise
    else:
        if not cut or end < len(part):
            return value, at + end
    return _DECODER.raw_decode(text, at)


def _bounded(value: object, text: str, at: int, end: int) -> None:
    """Refuse what is nested too deeply; texts with few brackets can't be."""
    if text.count("{", at, end) + text.count("[", at, end) <= DEPTH_MAX:
        return
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise Unreadable("nested too deeply", end)


def _inside(value: object) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise Unreadable("a number beyond what a double holds", 0)
    return number


def _refuse(word: str) -> NoReturn:
    raise Unreadable(f"{word} is no JSON", 0)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, unless a key is given twice with two values: one of them would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs) and any(dump(found[key]) != dump(value) for key, value in pairs):
        raise Unreadable("a key is given twice with different values", 0)
    return found


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse, object_pairs_hook=_unique)


class _Reader:
    """One reading by the wider rules. It owns nothing but what was mended so far."""

    def __init__(self, text: str, ends: re.Pattern[str] | None, python: bool) -> None:
        self.text = text
        self.ends = ends
        self.python = python
        self.mended: list[RepairKind] = []
        self.unclosed = False
        self._values = 0

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        """One value and the place after it."""
        self._values += 1
        if depth > DEPTH_MAX or self._values > VALUES_MAX:
            raise Unreadable("nested too deeply, or too many values", at + STACK_CHARS)
        head = self.text[at : at + 1]
        if head == "{":
            return self._object(at + 1, depth + 1)
        if head == "[":
            return self._items(at + 1, "]", depth + 1)[:2]
        if head == "(":
            return self._tuple(at + 1, depth + 1)
        if head and head in "\"'":
            return self._string(at)
        return self._scalar(at)

    def _space(self, at: int) -> int:
        """The place after white space and comments."""
        match = _SPACE.match(self.text, at)
        end = match.end() if match else at
        if self.text.startswith("/*", end):
            raise Unreadable("a comment without an end", len(self.text))
        blank = _BLANK.match(self.text, at)
        if blank and blank.end() < end:
            self.mended.append(RepairKind.LITERAL)
        return end

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        pairs: list[tuple[str, Any]] = []
        at = self._space(at)
        while self.text[at : at + 1] != "}":
            key, at = self._key(at)
            at = self._space(at)
            if self.text[at : at + 1] != ":":
                raise Unreadable("a colon was expected", at)
            value, at = self.value(self._space(at + 1), depth)
            pairs.append((key, value))
            at = self._space(at)
            if depth == 1 and self._ended(at):
                self.unclosed = True
                return _unique(pairs), at
            at = self._comma(at, "}")
        return _unique(pairs), at + 1

    def _ended(self, at: int) -> bool:
        return self.ends is not None and (at == len(self.text) or self.ends.match(self.text, at) is not None)

    def _comma(self, at: int, close: str) -> int:
        """The place of the next item, or of the closing bracket."""
        if self.text[at : at + 1] == close:
            return at
        if self.text[at : at + 1] != ",":
            raise Unreadable(f"a comma or {close} was expected", at)
        at = self._space(at + 1)
        if self.text[at : at + 1] == close:
            self.mended.append(RepairKind.LITERAL)
        return at

    def _items(self, at: int, close: str, depth: int) -> tuple[list[Any], int, bool]:
        """The items up to a closing bracket, and whether a comma stood after the last one."""
        items: list[Any] = []
        comma = False
        at = self._space(at)
        while self.text[at : at + 1] != close:
            value, at = self.value(at, depth)
            items.append(value)
            before = at = self._space(at)
            at = self._comma(at, close)
            comma = at > before
        return items, at + 1, comma

    def _tuple(self, at: int, depth: int) -> tuple[Any, int]:
        """A tuple is an array; one value in parentheses is that value."""
        items, end, comma = self._items(at, ")", depth)
        self.mended.append(RepairKind.LITERAL)
        return (items[0] if len(items) == 1 and not comma else items), end

    def _key(self, at: int) -> tuple[str, int]:
        if self.text[at : at + 1] in ('"', "'"):
            key, end = self._string(at)
            if _CONTROL.search(self.text, at, end):
                raise Unreadable("a line break inside a key", at)
            return key, end
        match = _WORD.match(self.text, at) or _INDEX.match(self.text, at)
        if match is None:
            raise Unreadable("a key was expected", at)
        self.mended.append(RepairKind.LITERAL)
        return match[0], match.end()

    def _string(self, at: int) -> tuple[str, int]:
        match = (_TRIPLE.match(self.text, at) if self.python else None) or _STRING.match(self.text, at)
        if match is None:
            raise Unreadable("a string without an end", len(self.text))
        double = match[1] is not None
        body = match[1] if double else match[2]
        if not double or match.re is _TRIPLE:
            self.mended.append(RepairKind.LITERAL)
        elif _CONTROL.search(body):
            self.mended.append(RepairKind.ESCAPE)
        return (self._unescape(body, at) if "\\" in body else body), match.end()

    def _unescape(self, body: str, at: int) -> str:
        """The string behind its escapes. Lone backslashes stay, unless other escapes leave their meaning
        open."""
        escapes = _ESCAPE.findall(body)
        lone = {e for e in escapes if len(e) == 1 and e not in _PLAIN and e not in _SELF and e != "\\"}
        if lone:
            if lone & _OPEN_MEANING or not all(e in lone or e in _SELF for e in escapes):
                raise Unreadable("a string mixes lone backslashes with escapes", at)
            self.mended.append(RepairKind.ESCAPE)
        elif any(e[0] in "xU" or e == "'" for e in escapes):
            self.mended.append(RepairKind.LITERAL)
        text = _ESCAPE.sub(_character, body)
        if _SURROGATE.search(text):
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return text

    def _scalar(self, at: int) -> tuple[Any, int]:
        match = _WORD.match(self.text, at)
        if match is not None:
            if match[0] not in _WORDS:
                raise Unreadable("a value without quotes", at)
            if match[0] not in ("true", "false", "null"):
                self.mended.append(RepairKind.LITERAL)
            return _WORDS[match[0]], match.end()
        match = _NUMBER.match(self.text, at)
        if match is None or not _AFTER_NUMBER.match(self.text, match.end()):
            raise Unreadable("a value was expected", at)
        return self._number(match[0], at), match.end()

    def _number(self, text: str, at: int) -> int | float:
        if "_" in text or "-." in text or text[0] == "." or text[-1] == "." or ".e" in text.lower():
            self.mended.append(RepairKind.LITERAL)
        try:
            return _finite(text) if set(text) & set(".eE") else int(text)
        except ValueError as error:
            raise Unreadable(getattr(error, "reason", "a number with too many digits"), at) from None


def _character(match: re.Match[str]) -> str:
    """What one escape stands for; a lone backslash stands for itself."""
    code = match[1]
    if len(code) > 1:
        number = int(code[1:], 16)
        if number > CODE_POINT_MAX:
            raise Unreadable("an escape beyond Unicode", match.start())
        return chr(number)
    return _PLAIN.get(code) or (code if code in _SELF or code == "\\" else match[0])
