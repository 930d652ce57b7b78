"""JSON values that are calls: which keys name the tool, which hold the arguments, and what may stand around them.

One object is a call when exactly one of its keys names a tool, at most one holds arguments, and every other key carries
nothing that a tool needs. Inside an envelope (`explicit`) a strange name is passed on, for the check to refuse;
outside, only a declared one makes a call. Without a name's key a value is a call only where nothing stands behind it:
at the end of an answer, or in a row before a call (`CallRun`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rapidfuzz import fuzz
from rapidfuzz.distance import OSA

from reliability.tool_calls import HIDDEN, UNDECLARED, RawCall
from reliability.tools.extract.call_forms import gives_values, has_call_form
from reliability.tools.extract.literal import Unreadable
from reliability.tools.format_row import NAME
from reliability.tools.formats import OPENER
from reliability.tools.schema.references import Places
from reliability.tools.schema.tool_names import fold, prepare_tool_names
from reliability.tools.schema.toolbox import Tool, ToolBox
from reliability.tools.turns import may_give_result

CALLS_MAX = 128
_LOOKED_MAX = 64  # values in which a call is looked for, and members of each
NAME_CHARS_MAX = 128
NEARLY = 80  # percent of two names that must be alike for one to be meant by the other

NAME_KEYS = ("name", "tool_name", "function_name", "tool", "function", "action", "recipient_name")
ARGUMENT_KEYS = (
    "arguments", "parameters", "args", "params", "action_input", "tool_input", "input", "kwargs", "tool_args",
)  # fmt: skip
WRAPPERS = ("tool_calls", "tool_call", "function_call", "function_calls", "function", "tool_uses", "calls", "actions")
_HOLDERS = ("action", "tool", "command")  # of a name, or of the call itself
_IDS = ("id", "call_id", "tool_call_id")
# What a message holds beside its calls: nothing, where it is to be a call.
_BESIDE = frozenset({"content", "refusal", "function_call", "annotations", "audio", "reasoning_content"})
_SILENT = frozenset({*_IDS, "type", "index", "thought", "thoughts", "reasoning", "explanation", "status", "role"})
_DEFINING = frozenset(("name", "type", "description", "title", "required", "optional", "default", "enum", "items"))
_WINDOW_CHARS_MAX = 400
_NAMED_KEY = re.compile(rf"\b(?:{'|'.join(NAME_KEYS)})\b[\"'}}\]]?\s{{0,8}}:?\s{{0,8}}[\"']{{0,2}}({NAME})")
_ARGUMENT_KEY = re.compile(rf"\b(?:{'|'.join(ARGUMENT_KEYS)})\b[\"'}}\]]?\s{{0,8}}:")
_CALLING = re.compile(r"(?i:function|call)|[Tt]ool(?:s|[_A-Z]|\Z)")
_BRACKET = re.compile(r"[{}\[\]]")
_JSON_BEGINS = re.compile(r"\{\s{0,64}(?:\"[^\"\n]{0,128}\"|'[^'\n]{0,128}'|\w{1,128})\s{0,64}[\"':]|\[\s{0,64}[\[{]")
_BETWEEN = re.compile(
    r"(?:[\s,;\\]|\b(?:and|then|also)\b(?=[ \t,:]*(?:\n|\Z))|(?:#|//)[^\n]{0,200}(?:\n|\Z))*+"
    r"(?:`{3,8}[\w+.#-]{0,32}\s*+){0,2}",
    re.IGNORECASE,
)
_CUT_JOINT = re.compile(r"(?:an?|th?|the|al|als|/)\Z", re.IGNORECASE)
_REST = re.compile(r"[ \t\r\n`]*+\Z")
_BRACKETED = re.compile(rf"\[{NAME}\]\s*+")
_CALLED = re.compile(rf"[\"'`]?({NAME})[\"'`]?\s{{0,8}}(?=\()")
_PRINTED = re.compile(r"print\(\s{0,8}")
_CUT_NAME = re.compile(rf"{NAME}\Z")
_SIGN = re.compile(
    r"[()\[\]{}]|\"(?:[^\"\\]|\\.)*+(?:\"|\\?\Z)|(?<=[=(,:\[{\s])'(?:[^'\\]|\\.)*+(?:'|\\?\Z)", re.DOTALL
)


Begins = Callable[[str, int], bool]


class HalfCall(Unreadable):
    """Surely meant as a call, and not to be had without loss."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known before a value is looked at. `explicit`: its envelope, or its own delimiter, says that it is a
    call. `alone`: it is the complete answer. `last`: it begins a line, and nothing stands behind it. `opened`: an
    opener stands before it."""

    box: ToolBox
    format: str
    explicit: bool = False
    alone: bool = False
    last: bool = False
    opened: bool = False


def find_calls(value: Any, setting: Setting) -> list[RawCall] | None:
    """Find the calls that this value is; None: none. Raises `HalfCall` for one that can't be taken without loss."""
    found = list(_walk(value, setting))
    calls = [call for call in found if call is not None]
    known = [call for call in calls if setting.box.find(call.name) is not None]
    if not setting.explicit and not known:
        if calls and len(calls) == len(found) and not setting.box.wants_json and _are_meant(value, calls, setting):
            raise HalfCall(f"{calls[0].name[:80]!r} {UNDECLARED}", 0)
        if (setting.alone or setting.last) and not setting.box.asked_json and _hides_call(value, setting.box):
            raise HalfCall(HIDDEN, 0)
        return None
    if len(found) > CALLS_MAX:
        raise HalfCall(f"more than {CALLS_MAX} calls", 0)
    if len(calls) < len(found) or not found:
        raise HalfCall("the name or the arguments are missing, or there are keys that no call has", 0)
    return calls


def _are_meant(value: Any, calls: Sequence[RawCall], setting: Setting) -> bool:
    """Return whether calls of names that aren't declared are meant: they have a tool's arguments, or are the whole
    answer and in the form of a call, or named nearly like a tool."""
    if not (setting.alone or setting.last) or not all(map(gives_values, calls)):
        return False
    if all(any(fits(call.arguments, tool) for tool in setting.box.tools) for call in calls):
        return True
    if not setting.alone or setting.box.asked_json:
        return False
    return has_call_form(value) or all(_is_nearly_declared(call.name, setting.box) for call in calls)


def _hides_call(value: Any, box: ToolBox) -> bool:
    """Return whether a call of a declared tool, with arguments that fit it, stands in a value whose keys speak of
    calls: `{"data": {...}}` is data."""
    level, hidden, speaks = [value], False, False
    for _ in range(0 if box.wants_json else _LOOKED_MAX):
        item = level.pop() if level else None
        if isinstance(item, dict):
            speaks = speaks or any(_CALLING.search(str(word)) for word in (*item, item.get("type"), item.get("method")))
            tools = [box.by_name.get(item[key]) for key in NAME_KEYS if isinstance(item.get(key), str)]
            given = [item[key] for key in ARGUMENT_KEYS if item.get(key)]
            tool = tools[0] if len(tools) == len(given) == 1 else None
            fitting = tool is not None and fits(given[0], tool) and not _is_definition(item, given[0], tool)
            hidden = hidden or fitting
        level += list(item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())[:_LOOKED_MAX]
    return hidden and speaks


def split_said(value: Any) -> tuple[Any, str]:
    """Return a chat completion's message with calls without its text, and that text; any other value as it is."""
    if not isinstance(value, dict) or not isinstance(value.get("tool_calls"), list):
        return value, ""
    said = value.get("content")
    return (value | {"content": None}, said) if isinstance(said, str) else (value, "")


def means_call(value: Any, box: ToolBox) -> bool:
    """Return whether a value that only a closer stands behind is meant as a call: `{"total": 3}` is data."""
    if isinstance(value, list):
        return any(means_call(item, box) for item in value[: CALLS_MAX + 1])
    if not isinstance(value, dict):
        return False
    if any(key in value for key in (*NAME_KEYS, *ARGUMENT_KEYS, *WRAPPERS)) or any(box.find(key) for key in value):
        return True
    return any(value.keys() <= tool.parameters.get("properties", {}).keys() for tool in box.tools)


def _walk(value: Any, setting: Setting) -> Iterable[RawCall | None]:
    if isinstance(value, list):
        for item in value[: CALLS_MAX + 1]:
            yield from _walk(item, setting) if isinstance(item, dict) else [None]
    elif isinstance(value, dict):
        inner = _unwrap(value)
        if inner is None:
            yield _read_call(value, setting)
        else:
            for call in _walk(inner, setting):
                yield call if call is None or call.id else replace(call, id=_find_id(value))
    else:
        yield None


def _find_id(value: Mapping[str, Any]) -> str | None:
    return next((value[key] for key in _IDS if isinstance(value.get(key), str)), None)


def _has_only_known_keys(value: Mapping[str, Any], keys: Iterable[str]) -> bool:
    return all(key in keys or key in _SILENT or (key in _BESIDE and not value[key]) for key in value)


def _unwrap(value: Mapping[str, Any]) -> list[Any] | None:
    keys = [key for key in (*WRAPPERS, *_HOLDERS) if isinstance(value.get(key), (dict, list))]
    if len(keys) != 1 or not _has_only_known_keys(value, keys):
        return None
    inner = value[keys[0]]
    return inner if isinstance(inner, list) else [inner]


def _read_call(value: Mapping[str, Any], setting: Setting) -> RawCall | None:
    if isinstance(value.get("function"), dict) and value["function"].keys() == {"name"}:  # its arguments stand outside
        value = {**value, "function": value["function"]["name"]}
    names = [key for key in NAME_KEYS if isinstance(value.get(key), str)]
    arguments = [key for key in ARGUMENT_KEYS if key in value]
    if len(names) != 1 or len(arguments) > 1 or not _has_only_known_keys(value, [*names, *arguments]):
        _refuse_half_calls(value, names, arguments, setting)
        return _read_named_by_key(value, setting) if not names else None
    name = value[names[0]]
    if arguments:
        given = value[arguments[0]]
        if _is_definition(value, given, setting.box.find(name)):
            return None
        return RawCall(name=name, arguments=given, id=_find_id(value), format=setting.format)
    tool = setting.box.find(name)
    means_call = setting.explicit or (setting.alone and len(value) == 1 and _is_nearly_declared(name, setting.box))
    if not means_call or (tool is not None and not tool.takes_nothing):
        return None
    return RawCall(name=name, arguments={}, id=_find_id(value), format=setting.format)


def _is_nearly_declared(name: str, box: ToolBox) -> bool:
    """Return whether a name alone is meant as the name of a tool: `{"name": "Ada"}` is data."""
    if box.wants_json:
        return False
    plain = fold(name[:NAME_CHARS_MAX])
    return box.find(name) is not None or any(fuzz.ratio(plain, fold(known)) >= NEARLY for known in box.names)


def _read_named_by_key(value: Mapping[str, Any], setting: Setting) -> RawCall | None:
    """Read `{"get_weather": {"city": "Lima"}}`: inside an envelope, and at the end with the tool's arguments."""
    name, given = next(iter(value.items()), ("", None))
    tool = setting.box.find(name)
    if len(value) != 1 or not isinstance(given, dict) or tool is None:
        return None
    if not setting.opened and (setting.box.wants_json or not (setting.last and fits(given, tool))):
        return None
    return RawCall(name=name, arguments=given, format=setting.format)


def fits(given: Any, tool: Tool) -> bool:
    """Return whether these may be all arguments of a call of this tool: no strange ones, and those that it requires."""
    if not isinstance(given, dict):
        return False
    known = tool.parameters.get("properties", {}).keys()
    return given.keys() <= known and _has_required(given, tool) and (bool(given) or tool.takes_nothing)


def _has_required(given: Container[str], tool: Tool) -> bool:
    return all(key in given for key in tool.required)


def _refuse_half_calls(value: Mapping[str, Any], names: list[str], arguments: list[str], setting: Setting) -> None:
    """Refuse a declared name next to arguments that aren't kept together, or a misspelled key."""
    apart = setting.explicit or ((setting.alone or setting.last) and not setting.box.wants_json)
    if apart and _has_misspelled_keys(value, setting.box):
        raise HalfCall("the key of a call's name or of its arguments is misspelled", 0)
    for key in names:
        tool = setting.box.find(value[key])
        if tool is None or (setting.box.wants_json and not setting.explicit):
            continue
        rest = value.keys() - {key, *_SILENT}
        flat = bool(rest) and rest <= tool.parameters.get("properties", {}).keys() and _has_required(rest, tool)
        given = value[arguments[0]] if arguments else None
        if flat or (isinstance(given, dict) and not _is_definition(value, given, tool)):
            raise HalfCall("a call's arguments must stand together under one key, and nothing else beside them", 0)


def _has_misspelled_keys(value: Mapping[str, Any], box: ToolBox) -> bool:
    """Return whether a declared name and its tool's arguments are all that stands here, under nearly the right keys."""
    loose = [key for key in value if key not in _SILENT]
    for key, other in (loose, loose[::-1]) if len(loose) == 2 else ():
        tool = box.find(value[key]) if isinstance(value[key], str) else None
        if tool is not None and isinstance(value[other], dict) and fits(value[other], tool):
            return _is_nearly(key, NAME_KEYS) and _is_nearly(other, ARGUMENT_KEYS)
    return False


def _is_nearly(key: str, known: Iterable[str]) -> bool:
    """Return whether a key is a known one, but for one letter or two in each other's place."""
    plain = fold(key[:NAME_CHARS_MAX])
    return any(OSA.distance(plain, one, score_cutoff=1) <= 1 for one in known)


def _is_definition(value: Mapping[str, Any], given: Any, tool: Tool | None) -> bool:
    """Return whether this is a tool's own declaration, written back instead of a call: the schema of the arguments, a
    list of parameters, or beside a description the schema of each."""
    known = tool.parameters.get("properties", {}) if tool is not None else {}
    if isinstance(given, dict) and given.get("type") == "object" and isinstance(given.get("properties"), dict):
        return "properties" not in known and all(isinstance(one, dict) for one in given["properties"].values())
    parts = given if isinstance(given, list) else list(given.values()) if isinstance(given, dict) else []
    if not parts or not all(isinstance(one, dict) and one.keys() <= _DEFINING for one in parts):
        return False
    if isinstance(given, list):
        return all(isinstance(one.get("name"), str) and (tool is None or one["name"] in known) for one in parts)
    places = Places({}) if tool is None else tool.places
    taken = [places.find_types(known.get(key)) for key in given]
    typed = all("type" in one for one in parts) and all(kinds and "object" not in kinds for kinds in taken)
    return typed and "description" in value


def looks_like_a_call(text: str, start: int, box: ToolBox) -> bool:
    """Return whether a declared name stands under a name's key in the beginning of JSON, by an arguments' key or the
    end."""
    if not _JSON_BEGINS.match(text, start):
        return False
    window = _cut_window(text, start)
    near_end = start + _WINDOW_CHARS_MAX >= len(text)
    return names_a_tool(window, 0, box) and (_ARGUMENT_KEY.search(window) is not None or near_end)


def names_a_tool(text: str, start: int, box: ToolBox) -> bool:
    """Return whether a declared name stands under a name's key, from `start` on."""
    return any(box.find(name) is not None for name in _NAMED_KEY.findall(text, start))


def _cut_window(text: str, start: int) -> str:
    window = text[start : start + _WINDOW_CHARS_MAX]
    opener = OPENER.search(window)
    window = window[: opener.start()] if opener else window
    depth = 0
    for bracket in _BRACKET.finditer(window):
        depth += 1 if bracket[0] in "{[" else -1
        if depth == 0:
            return window[: bracket.end()]
    return window


class _Waiting(NamedTuple):
    """Calls that wait, and where they stand."""

    start: int
    end: int
    calls: Sequence[RawCall]


class CallRun:
    """What waits, one right behind the other."""

    def __init__(self) -> None:
        self.waiting: list[_Waiting] = []
        self.broken: int | None = None  # where the first begins that can't be read

    def may_go_on(self, text: str, box: ToolBox, may_begin: Begins) -> bool:
        """Return whether a row may stand at the end of the text, in which the last call has yet to come."""
        begins = self.end if self.waiting else self.broken
        return begins is not None and goes_on(text, begins, box, may_begin)

    @property
    def end(self) -> int:
        """The place behind the last that waits; 0 where none does."""
        return self.waiting[-1].end if self.waiting else 0

    def add(self, text: str, start: int, end: int, calls: Sequence[RawCall]) -> None:
        """Let calls wait that stand here; those before them go on waiting where nothing stands between."""
        if start < self.end:
            return
        if not self.reaches(text, start):
            self.waiting = []
        self.waiting.append(_Waiting(start, end, calls))

    def take(self, text: str, start: int) -> list[_Waiting]:
        """Return those that are calls since one that counts begins here, and wait for none any more."""
        taken, self.waiting = self.waiting if self.reaches(text, start) else [], []
        return taken

    def reaches(self, text: str, start: int) -> bool:
        """Return whether what waits stands right before this place."""
        between = _BETWEEN.match(text, self.end) if self.waiting else None
        return between is not None and self.end <= start <= between.end() and not text[between.end() : start].strip()


def ends_here(text: str, at: int) -> bool:
    """Return whether nothing but white space and a fence stands behind this place."""
    return _REST.match(text, at) is not None


def goes_on(text: str, at: int, box: ToolBox, may_begin: Begins = lambda *_: False) -> bool:
    """Return whether the text behind this place, which ends too early to tell, may become a call in a row of them.
    `may_begin`: whether a call of another notation may begin at a place."""
    while True:
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
        if between is not None and at == len(text) and between[0].strip():
            return True
        if _CUT_JOINT.match(text, at) or may_give_result(text, at):
            return True
        head = _BRACKETED.match(text, at)
        if head is not None and head.end() == len(text):
            return True
        shown = None if head or box.find("print") else _PRINTED.match(text, at)
        called = None if head else _CALLED.match(text, shown.end() if shown else at)
        if called is not None and box.find(called[1].replace("\\", "")) is None:
            return may_begin(text, at)
        start = head.end() if head else called.end() if called else shown.end() if shown else at
        if text[start : start + 1] not in ("{", "[", "("):
            cut = _CUT_NAME.match(text, start)
            named = cut is not None and ("print".startswith(cut[0]) or prepare_tool_names(box.names).may_become(cut[0]))
            return named or may_begin(text, at)
        end = find_end(text, at + len("print") if shown else start)
        if end is None:
            return True
        at = end


def find_end(text: str, at: int) -> int | None:
    """Find the place behind the bracket that closes the next one."""
    depth = 0
    for sign in _SIGN.finditer(text, at):
        depth += 1 if sign[0] in "([{" else -1 if sign[0] in ")]}" else 0
        if depth == 0:
            return sign.end()
    return None
