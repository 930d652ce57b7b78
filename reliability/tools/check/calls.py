"""The one judgement on the calls of an answer: may they be delivered?

For each call: its name is declared, its arguments are JSON of an object, they satisfy the schema, they say something.
For all: the client's `tool_choice` and `parallel_tool_calls` are obeyed, and every id is unique in the conversation.

Invariants: while one violation stands, nothing is delivered. A valid call passes to the letter; repairs are lossless
and recorded. Judging the result again changes nothing and finds nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from pydantic import BaseModel, ConfigDict

from reliability.steps import Steps
from reliability.surrogates import join_all, join_surrogates, may_hold_halves
from reliability.tool_calls import Checked, Flaws, Malformed, RawCall, Repair, RepairKind, Violation, join
from reliability.tools.check.complaints import NAME_CHARS_MAX, describe, report_unknown_tool
from reliability.tools.check.handles import find_untold
from reliability.tools.check.placeholder_forms import PLACEHOLDERS
from reliability.tools.check.placeholders import find_implausible
from reliability.tools.check.repair import repair_arguments
from reliability.tools.extract.literal import Unreadable, dump, read
from reliability.tools.extract.text import holds_argument, read_arguments
from reliability.tools.schema.tool_names import clean_name
from reliability.tools.schema.toolbox import BadTools, Tool, ToolBox
from reliability.tools.schema.validator import UNBOUNDED
from reliability.types import ToolCall

_ENCODINGS_MAX = 3
_QUOTED = re.compile(r'\s*"(?:[^"\\]|\\.)*+"\s*', re.DOTALL)
_STEPS_A_GUESS = 5  # at what an unknown name may mean, for each tool
VIOLATIONS_MAX = 100
_NUMBER = "a number"
_KINDS = {str: "a string", bool: "a boolean", int: _NUMBER, float: _NUMBER, list: "an array", type(None): "null"}
_RAW_CHARS_MAX = 300
_ALLOWED_SHOWN = 8
# The arguments, their JSON text, and what was repaired in it.
_Given = tuple[dict[str, Any], str, tuple[RepairKind, ...]]
_IF_WORDS = " (if it is the answer itself and no call, write it again)"
_ID = re.compile(r"[\x21-\x7e]{1,128}")


class CheckConfig(BaseModel):
    """Which checks are on. Each key switches one off; repairs that belong to it go with it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    validate_json: bool = True
    validate_schema: bool = True
    validate_tool_names: bool = True
    placeholders: tuple[str, ...] = PLACEHOLDERS


@dataclass(frozen=True, slots=True)
class _Judged:
    name: str
    arguments: str
    repairs: tuple[Repair, ...] = ()
    violations: tuple[Violation, ...] = ()


def check_calls(
    raw_calls: Sequence[RawCall],
    toolbox: ToolBox,
    tool_choice: Any = None,
    parallel_tool_calls: bool | None = None,
    config: CheckConfig = CheckConfig(),  # noqa: B008 (frozen)
    *,
    new_id: Callable[[int], str],
    used_ids: Collection[str] = frozenset(),
    conversation: Sequence[str] | None = None,
    malformed: Sequence[Malformed] = (),
    steps: Steps | None = None,
) -> Checked:
    """Judge all calls of one answer. `new_id` gives the n-th spare id, `used_ids` are taken already. `conversation`:
    the texts of the messages. Each `malformed` is a violation. Raises `OutOfSteps`: it takes more than `steps` (None:
    as many as it takes); never where they are final."""
    steps = steps or Steps(UNBOUNDED)
    judged = [_judge(raw, i, toolbox, config, conversation, steps) for i, raw in enumerate(raw_calls)]
    ids = assign([raw.id for raw in raw_calls], used_ids, new_id)
    violations = [violation for one in judged for violation in one.violations]
    choice = parse_choice(tool_choice, toolbox)
    must = isinstance(choice, Choice) and choice.must
    violations += [_describe_malformed(one, len(judged) + i, must=must) for i, one in enumerate(malformed)]
    if not isinstance(choice, BadTools):
        violations += _find_breaches([one.name for one in judged], choice, parallel_tool_calls, len(malformed))
    repairs = [repair for one in judged for repair in one.repairs]
    repairs += [Repair(RepairKind.ID, join(i, "id")) for i, raw in enumerate(raw_calls) if raw.id and raw.id != ids[i]]
    calls = tuple(ToolCall(id=id, name=one.name, arguments=one.arguments) for id, one in zip(ids, judged, strict=True))
    return Checked(
        calls=() if violations else calls,
        doubted=calls if violations and not malformed and all(one.doubt for one in violations) else (),
        repairs=tuple(dict.fromkeys(repairs)),
        violations=_limit(violations),
    )


def _judge(
    raw: RawCall, i: int, box: ToolBox, config: CheckConfig, conversation: Sequence[str] | None, steps: Steps
) -> _Judged:
    tool = box.find(raw.name) or box.find(clean_name(raw.name))
    before = tuple(Repair(repair.kind, join(i) + repair.path) for repair in raw.repairs)
    if tool is None and config.validate_tool_names:
        guesses = _STEPS_A_GUESS * len(box.tools)
        steps.spend(min(guesses, max(steps.left, 0)) if steps.final else guesses)  # it is reported in any case
        return _Judged(raw.name, "", before, (report_unknown_tool(raw.name, i, box),))
    if tool is not None and tool.name != raw.name:
        before = (*before, Repair(RepairKind.NAME, join(i, "name")))
    name = join_surrogates(raw.name if tool is None else tool.name)
    given = _read_whole(raw, None if tool is None else tool.free_text)
    if isinstance(given, _Refused):
        if not config.validate_json and isinstance(raw.arguments, str):
            return _Judged(name, join_surrogates(raw.arguments), before)
        return _Judged(name, "", before, (Violation(given.kind, join(i, "arguments"), given.message, name),))
    value, text, kinds = given
    if RepairKind.EXTRA_TEXT in kinds and holds_argument(str(raw.arguments).rpartition("}")[2], tool, value):
        message = "must be one JSON object, with no argument behind it"
        return _Judged(name, "", before, (Violation(Flaws.NOT_JSON, join(i, "arguments"), message, name),))
    repairs = (*before, *(Repair(kind, join(i, "arguments")) for kind in kinds))
    if tool is None:
        return _Judged(name, text, repairs)
    if "\\_" in text and ("\\_" in raw.name or _has_escaped_key(value, tool)):
        message = "holds \\_, its own or one of Markdown: write underscores without a backslash"
        return _Judged(name, "", before, (Violation(Flaws.NOT_JSON, join(i, "arguments"), message, name),))
    violations: list[Violation] = []
    if config.validate_schema:
        repaired = repair_arguments(value, tool, steps)
        if repaired.repairs:
            value, text = repaired.value, dump(repaired.value)
            repairs = (*repairs, *(Repair(kind, join(i, "arguments", *path)) for kind, path in repaired.repairs))
        violations = describe(repaired.errors, i, tool)
    if not violations:
        violations = find_implausible(value, tool, i, config.placeholders, conversation, steps)
        violations += find_untold(value, tool, i, box, conversation, steps) if config.placeholders else []
    return _Judged(name, text, repairs, tuple(violations))


def _has_escaped_key(value: Mapping[str, Any], tool: Tool) -> bool:
    declared = tool.parameters.get("properties") or {}
    return any(key not in declared and key.replace("\\_", "_") in declared for key in value)


@dataclass(frozen=True, slots=True)
class _Refused:
    kind: Flaws
    message: str


def _read_whole(raw: RawCall, free_text: str | None) -> _Given | _Refused:
    """Return the arguments without half characters. `free_text`: the one key of a tool whose input is free text."""
    given = _read_raw(raw)
    if free_text is not None:
        given = _read_free_text(raw, given, free_text)
    if isinstance(given, _Refused) or not may_hold_halves(given[1]):
        return given
    value, _, kinds = given
    try:
        joined = join_all(value)
    except ValueError as error:
        return _Refused(Flaws.NOT_JSON, f"can't be read without loss: {error}")
    # A text with whole characters only may have spelled some of them as two escapes: it stays as it is.
    return given if joined is value else (joined, dump(joined), (*kinds, RepairKind.SURROGATE))


def _read_raw(raw: RawCall) -> _Given | _Refused:
    given = raw.arguments
    if isinstance(given, str):
        return _read_text(given)
    if given is None:
        return _build_empty()
    if not isinstance(given, Mapping):
        return _Refused(Flaws.NOT_OBJECT, f"must be an object, not {_KINDS.get(type(given), 'that')}")
    try:
        text = dump(given if isinstance(given, dict) else dict(given))
        value = read(text).value
    except (Unreadable, ValueError, TypeError, RecursionError):
        return _Refused(Flaws.NOT_JSON, "can't be written as JSON")
    return value, text, (RepairKind.OBJECT,) if raw.format == "native" else ()


def _read_free_text(raw: RawCall, given: _Given | _Refused, key: str) -> _Given | _Refused:
    """Return what a tool of free text is given: one text under any key that is all there is, or the bare text."""
    bare, found = raw.arguments, {} if isinstance(given, _Refused) else given[0]
    if isinstance(bare, str) and bare.strip() and not bare.lstrip().startswith(("{", '"', "`")):
        found = {key: bare}
    elif not isinstance(given, _Refused) and RepairKind.EXTRA_TEXT not in given[2] and key in found:
        return given
    elif isinstance(bare, str) and _QUOTED.fullmatch(bare):
        found = {key: read(bare).value}
    elif not isinstance(given, _Refused) and RepairKind.EXTRA_TEXT in given[2]:
        return _Refused(Flaws.NOT_JSON, "must be one JSON object, with nothing before or behind it")
    texts = list(found.values())
    if len(texts) != 1 or not isinstance(texts[0], str):
        return given
    return {key: texts[0]}, dump({key: texts[0]}), (RepairKind.ENVELOPE,)


def _read_text(text: str) -> _Given | _Refused:
    if not text.strip():
        return _build_empty()
    kinds: tuple[RepairKind, ...] = ()
    inner: Any = text
    for _ in range(_ENCODINGS_MAX):
        value = read_arguments(inner)
        if isinstance(value, str) and not isinstance(once := read_arguments(_drop_gateways_part(inner)), str):
            value, kinds = once, (*kinds, RepairKind.ENVELOPE)
        if isinstance(value, str):
            return _Refused(Flaws.NOT_JSON, f"can't be read as JSON: {value}")
        kinds, inner = (*kinds, *value.repair_kinds), value.value
        if isinstance(inner, dict):
            return inner, dump(inner) if kinds else text, tuple(dict.fromkeys(kinds))
        if not isinstance(inner, str):
            break
        if not inner.strip():
            return _build_empty()
        kinds = (*kinds, RepairKind.DOUBLE_ENCODING)
    if inner is None and not kinds:
        return _build_empty()
    return _Refused(Flaws.NOT_OBJECT, f"must be an object, not {_KINDS.get(type(inner), 'that')}")


def _drop_gateways_part(text: str) -> str:
    """Return arguments without what some gateways stream before or behind them: `{}`, or all of them once more."""
    bare = text.strip()
    half = bare[: len(bare) // 2]
    return half if half + half == bare else bare.removeprefix("{}").removesuffix("{}")


def _build_empty() -> _Given:
    return {}, "{}", (RepairKind.EMPTY,)


def _describe_malformed(one: Malformed, i: int, *, must: bool) -> Violation:
    raw = re.sub(r"\s+", " ", one.raw[:_RAW_CHARS_MAX])
    message = f"{one.reason}, in: {raw}" if raw else one.reason
    doubt = None if must else one.doubt
    return Violation(Flaws.MALFORMED, join(i), message + (_IF_WORDS if doubt else ""), doubt=doubt)


def _limit(violations: list[Violation]) -> tuple[Violation, ...]:
    found = list(dict.fromkeys(violations))
    if len(found) <= VIOLATIONS_MAX:
        return tuple(found)
    more = len(found) - VIOLATIONS_MAX + 1
    return (*found[: VIOLATIONS_MAX - 1], Violation(Flaws.SCHEMA, "", f"and {more} more"))


def id_source(seed: str) -> Callable[[int], str]:
    """Build ids that look like OpenAI's, from a seed such as the request's id."""
    return lambda n: "call_" + hashlib.sha256(f"{seed}/{n}".encode("utf-8", "surrogatepass")).hexdigest()[:24]


def ids_in(messages: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Collect all ids of calls that a conversation holds already."""
    found: set[str] = set()
    for message in messages:
        if calls := message.get("tool_calls"):
            for call in calls if isinstance(calls, list) else ():
                if isinstance(call, Mapping) and isinstance(call.get("id"), str):
                    found.add(call["id"])
        if isinstance(id := message.get("tool_call_id"), str):
            found.add(id)
    return frozenset(found)


def assign(given: Sequence[str | None], used: Collection[str], new_id: Callable[[int], str]) -> list[str]:
    """Assign one id to each call: its own where that is fit and free, else a new one."""
    taken = {*used}
    barred = taken | {id for id in given if id is not None}
    unused = (id for id in map(new_id, count()) if id not in barred)
    found: list[str] = []
    for own in given:
        is_fit = own is not None and own not in taken and _ID.fullmatch(own)
        found.append(own if own is not None and is_fit else next(unused))
        taken.add(found[-1])
    return found


@dataclass(frozen=True, slots=True)
class Choice:
    """`must`: at least one call. `may`: the tools that may be called; None means all of them, empty none."""

    must: bool = False
    may: tuple[str, ...] | None = None


_WORDS = {"auto": Choice(), "none": Choice(may=()), "required": Choice(must=True), "any": Choice(must=True)}


def parse_choice(value: Any, box: ToolBox) -> Choice | BadTools:
    """Parse the client's choice; without one it is `auto` where tools are declared, else `none`."""
    if value is None:
        return _WORDS["auto" if box.tools else "none"]
    if isinstance(value, str):
        if value not in _WORDS:
            return BadTools("/tool_choice", f"must be one of {', '.join(_WORDS)}, or an object that names a tool")
        choice = _WORDS[value]
        return BadTools("/tool_choice", "no tools are declared") if choice.must and not box.tools else choice
    if not isinstance(value, Mapping):
        return BadTools("/tool_choice", "must be a word or an object")
    if value.get("type") == "allowed_tools":
        inner = value.get("allowed_tools", value)
        if not isinstance(inner, Mapping):
            return BadTools("/tool_choice/allowed_tools", "must be an object")
        tools = inner.get("tools")
        if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
            return BadTools("/tool_choice/allowed_tools/tools", "must be an array of tools")
        return _parse_named(tools, box, must=inner.get("mode") == "required")
    return _parse_named([value], box, must=True)


def _parse_named(tools: Sequence[Mapping[str, Any]], box: ToolBox, *, must: bool) -> Choice | BadTools:
    names: list[str] = []
    for tool in tools:
        function = tool.get("function")
        name = (function if isinstance(function, Mapping) else tool).get("name")
        if not isinstance(name, str) or name not in box.by_name:
            return BadTools(join("tool_choice", "function", "name"), "names no declared tool")
        names.append(name)
    return Choice(must=must, may=tuple(dict.fromkeys(names)))


def _list_allowed(choice: Choice) -> list[str]:
    return [name[:NAME_CHARS_MAX] for name in (choice.may or ())[:_ALLOWED_SHOWN]]


def _find_breaches(names: Sequence[str], choice: Choice, parallel: bool | None, unread: int = 0) -> list[Violation]:
    found: list[Violation] = []
    if choice.must and not names and not unread:
        wanted = f"call {' or '.join(_list_allowed(choice))}" if choice.may else "call a tool"
        words = f"the request wants you to {wanted}, and no tool was called"
        found.append(Violation(Flaws.TOOL_CHOICE, "/tool_choice", words))
    for i, name in enumerate(names):
        if choice.may is not None and name not in choice.may:
            only = f"only {', '.join(_list_allowed(choice))} may be called" if choice.may else "no tool may be called"
            found.append(Violation(Flaws.TOOL_CHOICE, join(i, "name"), only, name))
    if parallel is False and len(names) + unread > 1:
        words = f"only one call at a time is allowed, not {len(names) + unread}"
        found.append(Violation(Flaws.PARALLEL, "/parallel_tool_calls", words))
    return found
