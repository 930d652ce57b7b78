"""What stands inside an envelope, or on its own: JSON, a name and JSON, words and JSON, and Gemma's brace notation.

Each reader looks at one place and answers `Found` (calls, and where they end), None (not this notation), or
`Unreadable` (this notation, but not without loss). Readers never look back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from reliability.tool_calls import RawCall, Repair, RepairKind
from reliability.tools.extract import shapes
from reliability.tools.extract.literal import Unreadable, Value, read
from reliability.tools.extract.shapes import HalfCall, Setting
from reliability.tools.format_row import NAME, Reader
from reliability.tools.formats import BLANK, CLOSER, FENCE, SPEECH_END, has_only_delimiters
from reliability.tools.schema.toolbox import Tool

_ENDS = re.compile(rf"{CLOSER.pattern}|`{{3,}}", re.IGNORECASE)

_NAMED = re.compile(
    rf"(?:>>>[ \t]{{0,8}})?(?:\[(?P<bracketed>{NAME})\]|(?P<name>{NAME}))\s{{0,8}}"
    r"(?P<sep>\[CALL_ID\](?P<id>[\w-]{1,64})\[ARGS\]|\[ARGS\]|<\|tool_call_argument_begin\|>|<[|｜]tool[▁_ ]sep[|｜]>"
    r"|<tool_sep>|<\|content\|>|=|\(|)\s{0,8}"
    r"(?P<fence>`{3,}\w{0,16}\s{0,8})?(?=\{)"
)
_IN_LINE = re.compile(rf"[ \t]*+(?P<name>{NAME})[ \t]*+(?=\{{)")
_LINE_END = re.compile(rf"[ \t]*+(?:\r?\n|\Z|`{{3}}|{CLOSER.pattern})", re.IGNORECASE)
_INDEXED = re.compile(r"(?P<name>.+?):\d{1,6}")
_BRACES = re.compile(rf"call:(?P<name>{NAME})\{{")
# In an envelope the word may be missing; then a bare key, or nothing, must follow.
_BRACES_INSIDE = re.compile(rf"(?:call)?:?(?P<name>{NAME})\{{(?=\s*(?:[A-Za-z_][\w.-]{{0,127}}:\s*(?![\"'])|\}}))")
_QUOTE = re.compile(r'<\|"\|>|<escape>')
_BARE = re.compile(r"[^,{}\[\]<]+")
_PLAIN = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_BRACES_DEPTH_MAX = 64
_KEY_CHARS_MAX = 256
_TYPES_OF = {
    type(None): frozenset({"null"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
}
_IN_NO_KEY = re.compile(r"[,{}\[\]<>\"]")
_CLOSERS_CHARS = 128
_TURN_END = re.compile(rf"(?!<\|call\|>)(?:{SPEECH_END.pattern})", re.IGNORECASE)
_HEADS = {
    Reader.REACT.value: re.compile(rf"(?P<name>{NAME})[ \t]{{0,8}}\r?\n\s{{0,8}}Action Input:\s{{0,8}}", re.IGNORECASE),
    Reader.CHANNEL.value: re.compile(rf"(?P<name>{NAME})[^\n{{]{{0,64}}\s{{0,8}}(?=\{{|\Z)"),
}
# Another key right behind an object, which was closed too early.
_KEY_BEHIND = re.compile(r"(?:[ \t]*|\s*[,}\]][\s,}\]]*)[\"']?[\w$.-]{1,64}[\"']\s{0,8}:")
_FENCE = re.compile(r"\s{0,8}`{3,8}[\w+.#-]{0,32}\s{0,8}")


@dataclass(frozen=True, slots=True)
class Found:
    """Calls, and the place after them. No calls: data, up to that place, or calls if nothing but calls stood behind it
    (`waiting`). `unended`: a list of calls lacks its end, as the text does. `said`: the text beside them."""

    calls: list[RawCall]
    end: int
    waiting: tuple[RawCall, ...] = ()
    unended: bool = False
    said: str = ""


def skip_space(text: str, at: int) -> int:
    """Return the place after white space."""
    match = BLANK.match(text, at)
    return match.end() if match else at


def skip_parenthesis(text: str, at: int) -> int:
    """Return the place behind a closing parenthesis, which must stand here."""
    at = skip_space(text, at)
    if text[at : at + 1] != ")":
        raise Unreadable("a closing parenthesis was expected", at)
    return at + 1


def read_json(text: str, at: int, setting: Setting) -> Found | None:
    """Read an object or an array that is a call, or calls; or a name and its arguments that are all of a line."""
    if text[at : at + 1] not in ("{", "["):
        return None if setting.explicit else _read_line(text, at, setting)
    value = read(text, at, ends=_ENDS)
    content, said = (value.value, "") if setting.explicit else shapes.split_said(value.value)
    explicit = setting.explicit
    if not explicit:  # the closer of a call may stand behind it; a turn's end ends data as well
        behind = skip_space(text, value.end)
        closed = CLOSER.match(text, behind) is not None and _TURN_END.match(text, behind) is None
        explicit = closed and shapes.means_call(content, setting.box)
    begins = setting.last
    ends = (setting.alone or setting.last) and shapes.ends_here(text, value.end)
    near = begins and not ends and len(text) - value.end <= _CLOSERS_CHARS
    last = begins and (ends or (near and has_only_delimiters(text[value.end :])))
    setting = replace(setting, explicit=explicit, opened=setting.explicit, alone=ends and setting.alone, last=last)
    calls = shapes.find_calls(content, setting)
    if calls is None:
        may_wait = begins and not value.unclosed and not said
        return Found([], value.end, _find_waiting(content, setting) if may_wait else ())
    kinds = list(value.repair_kinds)
    listed = isinstance(content, list)
    if value.unclosed:
        holds_arguments = any(key in content for key in (*shapes.ARGUMENT_KEYS, *shapes.WRAPPERS))
        if not listed and (not holds_arguments or any(_holds_object(call.arguments) for call in calls)):
            raise HalfCall("a closing brace is missing, and it can't be told which", value.end)
        kinds.append(RepairKind.ENVELOPE)
    unended = listed and value.unclosed and value.end == len(text)
    return Found([record_repairs(call, kinds) for call in calls], value.end, unended=unended, said=said)


def _read_line(text: str, at: int, setting: Setting) -> Found | None:
    named = _IN_LINE.match(text, at)
    tool = setting.box.find(named["name"]) if named else None
    if named is None or tool is None:
        return None
    value = read_object(text, named.end())
    behind = _IN_LINE.match(text, value.end)
    ends = _LINE_END.match(text, value.end) or (behind and setting.box.find(behind["name"]))
    if not ends or not shapes.fits(value.value, tool):
        return None
    return build_found(named["name"], value.value, setting, value.end, value.repair_kinds)


def _find_waiting(value: Any, setting: Setting) -> tuple[RawCall, ...]:
    try:
        return tuple(shapes.find_calls(value, replace(setting, last=True)) or ())
    except HalfCall:
        return ()


def goes_on_behind(text: str, at: int) -> bool:
    """Return whether another key stands right behind an object: it was closed too early."""
    return _KEY_BEHIND.match(text, at) is not None


def read_object(text: str, at: int, error: type[Unreadable] = Unreadable) -> Value:
    """Read the object that is all arguments of a call; raise `error` where another value stands here."""
    value = read(text, at)
    if not isinstance(value.value, dict):
        raise error("the arguments must be an object", value.end)
    return value


def build_found(
    name: str, arguments: Any, setting: Setting, end: int, kinds: Iterable[RepairKind] = (), id: str | None = None
) -> Found:
    """Build the one call that ends here, with what was repaired while it was read."""
    call = RawCall(name=name, arguments=arguments, id=id, format=setting.format)
    return Found([record_repairs(call, list(kinds))], end)


def record_repairs(call: RawCall, kinds: list[RepairKind]) -> RawCall:
    """Return the call with what was repaired while it was read."""
    if not kinds:
        return call
    return replace(call, repairs=(*call.repairs, *(Repair(kind, "/arguments") for kind in dict.fromkeys(kinds))))


def _holds_object(arguments: Any) -> bool:
    if not isinstance(arguments, dict):
        return not isinstance(arguments, str)
    level = list(arguments.values())
    while level:
        item = level.pop()
        if isinstance(item, dict):
            return True
        if isinstance(item, list):
            level += item
    return False


def read_named(text: str, at: int, setting: Setting) -> Found | None:
    """Read `name{json}` with the separators of several families; in the open only for a declared name."""
    match = _NAMED.match(text, at)
    if match is None or (not setting.explicit and match["sep"] == "="):
        return None
    name, id = match["bracketed"] or match["name"], match["id"]
    if (indexed := _INDEXED.fullmatch(name)) is not None and setting.box.find(name) is None:
        name, id = indexed["name"].removeprefix("functions."), name
    if not setting.explicit and setting.box.find(name) is None:
        return None
    value = read_object(text, match.end())
    end = value.end
    if match["fence"] and (fence := FENCE.match(text, skip_space(text, end))):
        end = fence.end()
    if match["sep"] == "(":
        end = skip_parenthesis(text, end)
    found = build_found(name, value.value, setting, end, value.repair_kinds, id)
    if match["bracketed"] and not CLOSER.match(text, skip_space(text, end)) and not shapes.ends_here(text, end):
        return None if setting.explicit else Found([], end, tuple(found.calls))
    return found


def read_braces(text: str, at: int, setting: Setting) -> Found | None:
    """Read `call:name{key:<|"|>text<|"|>,n:1}`."""
    match = _BRACES.match(text, at) or (_BRACES_INSIDE.match(text, at) if setting.explicit else None)
    tool = setting.box.find(match["name"]) if match is not None else None
    if match is None or (not setting.explicit and tool is None):
        return None
    kinds: list[RepairKind] = []
    arguments, end = _read_braces_object(text, match.end(), 1, kinds)
    may_be_text = tool is not None and arguments.keys() <= tool.parameters.get("properties", {}).keys()
    settled = {key: _read_bare(one, tool, key, may_be_text, match.start()) for key, one in arguments.items()}
    return build_found(match["name"], settled, setting, end, kinds)


def _read_braces_value(text: str, at: int, depth: int, kinds: list[RepairKind]) -> tuple[Any, int]:
    if depth > _BRACES_DEPTH_MAX:
        raise Unreadable("nested too deeply", at)
    quote = _QUOTE.match(text, at)
    if quote is not None:
        end = text.find(quote[0], quote.end())
        if end < 0:
            raise Unreadable("a string without an end", len(text))
        return text[quote.end() : end], end + len(quote[0])
    if text[at : at + 1] == "{":
        return _read_braces_object(text, at + 1, depth + 1, kinds)
    if text[at : at + 1] == "[":
        return _read_braces_array(text, at + 1, depth + 1, kinds)
    if text[at : at + 1] in ('"', "'"):
        return _read_quoted(text, at, kinds)
    word = _BARE.match(text, at)
    if word is None or not word[0].strip():
        raise Unreadable("a value was expected", at)
    bare = word[0].rstrip(" \t\r\n")
    if (len(bare) < len(word[0]) or text[at - 1].isspace()) and not _PLAIN.fullmatch(bare):
        kinds.append(RepairKind.LAYOUT)  # of a text without quotes, white space around it may be its own
    return _Bare(bare), word.end()


class _Bare(str):
    __slots__ = ()


def _read_bare(value: Any, tool: Tool | None, key: str | None, may_be_text: bool, at: int) -> Any:
    """Read the values without quotes: literals; and texts, where all keys of the call are parameters
    (`may_be_text`)."""
    if isinstance(value, list):
        return [_read_bare(one, tool, None, False, at) for one in value]
    if isinstance(value, dict):
        return {inner: _read_bare(one, tool, None, False, at) for inner, one in value.items()}
    if not isinstance(value, _Bare):
        return value
    kinds = None
    if key is not None and tool is not None:
        kinds = tool.places.find_types(tool.places.find_member(tool.parameters, key))
    literal = read(value).value if _PLAIN.fullmatch(value) else value
    if kinds is not None and "string" in kinds and may_be_text:
        return str(value) if not kinds & _TYPES_OF.get(type(literal), frozenset()) else literal
    if isinstance(literal, _Bare):
        raise Unreadable("a value without quotes", at)
    return literal


def _read_quoted(text: str, at: int, kinds: list[RepairKind]) -> tuple[Any, int]:
    value = read(text, at)
    kinds += (RepairKind.LITERAL, *value.repair_kinds)
    return value.value, value.end


def _read_braces_object(text: str, at: int, depth: int, kinds: list[RepairKind]) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    begin, at = at, skip_space(text, at)
    while text[at : at + 1] != "}":
        key, at = _read_braces_key(text, begin, at, kinds)
        if key in found:
            raise Unreadable("a key is given twice", at)
        found[key], at = _read_braces_value(text, skip_space(text, at), depth, kinds)
        begin, at = skip_to_next(text, at, "}")
    return found, at + 1


def _read_braces_key(text: str, begin: int, at: int, kinds: list[RepairKind]) -> tuple[str, int]:
    """Read the key whose white space begins at `begin`, and the place behind its colon."""
    quote = _QUOTE.match(text, at)
    if quote is None and text[at : at + 1] in ('"', "'"):
        key, end = _read_quoted(text, at, kinds)
        end = skip_space(text, end)
        if text[end : end + 1] != ":":
            raise Unreadable("a colon was expected", end)
        return key, end + 1
    at = quote.end() if quote else at
    mark = quote[0] + ":" if quote else ":"
    colon = text.find(mark, at, at + _KEY_CHARS_MAX)
    if colon < 0:
        raise Unreadable("a key was expected", at)
    if quote:
        return text[at:colon], colon + len(mark)
    key = text[at:colon].strip()
    if _IN_NO_KEY.search(key):
        raise Unreadable("a key that holds signs of this notation", at)
    if len(key) < colon - begin:  # of a key without quotes, white space around it may be the layout's or its own
        kinds.append(RepairKind.LAYOUT)
    return key, colon + 1


def _read_braces_array(text: str, at: int, depth: int, kinds: list[RepairKind]) -> tuple[list[Any], int]:
    found: list[Any] = []
    at = skip_space(text, at)
    while text[at : at + 1] != "]":
        value, at = _read_braces_value(text, at, depth, kinds)
        found.append(value)
        _, at = skip_to_next(text, at, "]")
    return found, at + 1


def skip_to_next(text: str, at: int, close: str) -> tuple[int, int]:
    """Return the place behind a comma and where the next item begins; both are that of `close` at the end."""
    at = skip_space(text, at)
    if text[at : at + 1] == close:
        return at, at
    if text[at : at + 1] != ",":
        raise Unreadable(f"a comma or {close} was expected", at)
    return at + 1, skip_space(text, at + 1)


def read_announced(text: str, at: int, setting: Setting) -> Found | None:
    """Read the name and the object, in a fence or without, behind the words that end here."""
    named = _HEADS[setting.format].match(text, at)
    if named is None or setting.box.find(named["name"]) is None:
        return None
    fence = _FENCE.match(text, named.end())
    value = read_object(text, fence.end() if fence else named.end())
    closing = _FENCE.match(text, value.end) if fence else None
    kinds = [RepairKind.FENCE] * bool(fence) + list(value.repair_kinds)
    return build_found(named["name"], value.value, setting, closing.end() if closing else value.end, kinds)


def read_fenced(text: str, at: int, setting: Setting) -> Found | None:
    """Read calls in JSON behind words that announce them, in a fence or without."""
    fence = _FENCE.match(text, at)
    start = skip_space(text, fence.end() if fence else at)
    try:
        found = read_json(text, start, setting)
    except Unreadable as bad:
        if shapes.looks_like_a_call(text, start, setting.box):
            raise HalfCall(bad.reason, bad.at) from None
        raise
    if found is None or not found.calls:
        return None
    closing = _FENCE.match(text, found.end) if fence else None
    return replace(found, end=closing.end() if closing else found.end)
