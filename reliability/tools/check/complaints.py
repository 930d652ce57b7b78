"""A schema's complaints, phrased for a model, and the message of a re-ask that carries them.

The message is one bounded text for all violations, then the signatures of the tools that were meant, then the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from rapidfuzz import fuzz, process

from reliability.tool_calls import Flaws, Violation, join
from reliability.tools.schema.complaint import KEYS_MAX, Complaint
from reliability.tools.schema.tool_names import fold, prepare_tool_names
from reliability.tools.schema.toolbox import Tool, ToolBox

MESSAGE_CHARS_MAX = 200
_SUGGESTIONS_MAX = 3
# What a tool takes that calls another one for the model: qwen-code hides the tools of MCP servers behind one.
_PASSED_ON = {"name", "arguments"}
_SUGGESTION_SCORE_MIN = 60.0
# Words of tools that weak models call without having them, and that a shell does as well; and what a command is called.
_SHELL_DEED = re.compile(
    r"(?<![a-z])(read|write|edit|create|delete|remove|move|copy|rename|open|view|list|ls|dir|directory|folder|files?|cat"
    r"|head|tail|grep|rg|find|search|glob|run|execute|exec|bash|sh|shell|terminal|command|python|node|git|tests?)(?![a-z])"
)
_COMMANDS = ("command", "cmd")
NAME_CHARS_MAX = 80
_OF_MEMBERS = {
    "required": "is required",
    "dependentRequired": "is required beside {beside}",
    "additionalProperties": "is no parameter of this tool",
    "unevaluatedProperties": "is no parameter of this tool",
    "propertyNames": "is no name that is allowed here",
}
_PHRASES = {
    "type": "must be {wanted}, not {got}",
    "enum": "must be one of {wanted}, not {got}",
    "const": "must be {wanted}, not {got}",
    "format": "{got} is no valid {wanted}",
    "pattern": "{got} does not match {wanted}",
    "multipleOf": "{got} is not a multiple of {wanted}",
    "minimum": "{got} is less than the minimum of {wanted}",
    "maximum": "{got} is greater than the maximum of {wanted}",
    "exclusiveMinimum": "{got} is not greater than {wanted}",
    "exclusiveMaximum": "{got} is not less than {wanted}",
    "minLength": "{got} is too short: at least {wanted} characters",
    "maxLength": "{got} is too long: at most {wanted} characters",
    "minItems": "{got} is too short: at least {wanted} items",
    "maxItems": "{got} is too long: at most {wanted} items",
    "minProperties": "{got} has too few members: at least {wanted}",
    "maxProperties": "{got} has too many members: at most {wanted}",
    "uniqueItems": "{got} has items that are equal",
    "contains": "{got} holds too few items of the kind that must be there",
    "maxContains": "{got} holds more than {wanted} items of a kind",
    "items": "{got} has more items than are allowed",
    "unevaluatedItems": "{got} has more items than are allowed",
    "not": "{got} is of a form that is not allowed",
    "false": "{got} is not allowed here",
    "unjudged": "the schema of this tool can't judge these arguments",
    "too large": "the arguments take longer to check than this server allows",
}
_REASK_CHARS_MAX = 6_000
_VIOLATIONS_CHARS_MAX = 3_000
_SIGNATURE_CHARS_MAX = 600
_MORE_CHARS = 24


def report_unknown_tool(name: str, i: int, box: ToolBox) -> Violation:
    """Report that there is no such tool; the guess goes into the message, never into the call."""
    shown = name[:NAME_CHARS_MAX]
    meant = prepare_tool_names(box.names).list_meant(name)
    if meant:
        words = f"{shown!r} may be any of several tools: call {_list_names(meant)}"
        return Violation(Flaws.UNKNOWN_TOOL, join(i, "name"), words[:MESSAGE_CHARS_MAX], shown)
    parts = set(fold(shown).split("_"))
    within = [tool.name for tool in box.tools if parts.issuperset(fold(tool.name).split("_"))]
    shell = find_shell(box) if not within and _SHELL_DEED.search(fold(shown)) else None
    hint = f"; to do that, call {shell!r} with a shell command" if shell else _suggest(within or _list_near(shown, box))
    through = (tool.name for tool in box.tools if (tool.parameters.get("properties") or {}).keys() == _PASSED_ON)
    hint += "".join(f"; if you were shown it elsewhere, call {name!r} with its name and arguments" for name in through)
    words = f"there is no tool named {shown!r}{hint}"
    return Violation(Flaws.UNKNOWN_TOOL, join(i, "name"), words[:MESSAGE_CHARS_MAX], shown)


def find_shell(box: ToolBox) -> str | None:
    """Find the tool that takes commands of a shell."""
    for tool in box.tools:
        properties = tool.parameters.get("properties") or {}
        schema = next((properties[key] for key in _COMMANDS if key in properties), None)
        if isinstance(schema, dict) and schema.get("type") in ("string", "array") and "enum" not in schema:
            return tool.name
    return None


def _list_near(name: str, box: ToolBox) -> list[str]:
    folded = {tool.name: fold(tool.name) for tool in box.tools}
    found = process.extract(
        fold(name), folded, scorer=fuzz.ratio, limit=_SUGGESTIONS_MAX, score_cutoff=_SUGGESTION_SCORE_MIN
    )
    return [key for *_, key in found]


def _suggest(names: Sequence[str]) -> str:
    return f"; did you mean {_list_names(names[:_SUGGESTIONS_MAX])}?" if names else ""


def _list_names(names: Sequence[str]) -> str:
    return " or ".join(map(repr, names))


def describe(errors: Iterable[Complaint], i: int, tool: Tool) -> list[Violation]:
    """Describe the complaints, each once, at most `KEYS_MAX`."""
    found: dict[Violation, None] = {}
    for error in errors:
        for path, message in _phrase(error):
            if len(found) >= KEYS_MAX:
                break
            found[Violation(Flaws.SCHEMA, join(i, "arguments", *path), message[:MESSAGE_CHARS_MAX], tool.name)] = None
    return list(found)


def _phrase(error: Complaint) -> Iterator[tuple[tuple[object, ...], str]]:
    path, kind, got, wanted = error.path, error.keyword, error.got, error.wanted
    if kind in _OF_MEMBERS:
        beside = repr(next(iter(wanted))) if kind == "dependentRequired" else ""
        yield from (((*path, key), _OF_MEMBERS[kind].format(beside=beside)) for key in error.keys)
    elif kind in ("anyOf", "oneOf"):
        count = "none" if error.context else "more than one"
        yield path, f"{_shorten(got)} fits {count} of the allowed forms{_describe_nearest(error)}"
    else:
        yield path, _PHRASES[kind].format(got=_shorten(got), wanted=_name_wanted(kind, wanted))


def _name_wanted(kind: str, wanted: Any) -> str:
    if kind == "type":
        return " or ".join(wanted if isinstance(wanted, list) else [wanted])
    if kind == "enum":
        return _shorten(wanted, 120)[1:-1]
    return str(wanted) if kind == "format" else _shorten(wanted)


def _describe_nearest(error: Complaint) -> str:
    inner = max(error.context, key=lambda one: len(one.path), default=None)
    phrase = next(_phrase(inner), None) if inner is not None else None
    return f" ({join(*phrase[0])} {phrase[1]})" if phrase is not None else ""


def _shorten(value: Any, chars: int = 60) -> str:
    """Return the beginning of a value's JSON; what is behind it is never written."""
    text, parts = "", _write_json(value, chars)
    while len(text) <= chars and (part := next(parts, None)) is not None:
        text += part
    return text if len(text) <= chars else text[: chars - 1] + "…"


def _write_json(value: Any, chars: int) -> Iterator[str]:
    """Write the JSON of a value, piece by piece; a text is cut where it is too long to be shown."""
    if isinstance(value, dict):
        yield "{"
        for i, (key, member) in enumerate(value.items()):
            yield f"{', ' if i else ''}{json.dumps(str(key)[:chars], ensure_ascii=False)}: "
            yield from _write_json(member, chars)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for i, item in enumerate(value):
            yield ", " if i else ""
            yield from _write_json(item, chars)
        yield "]"
    else:
        yield json.dumps(value[: chars + 1] if isinstance(value, str) else value, ensure_ascii=False, default=str)


def corrective_message(violations: Sequence[Violation], toolbox: ToolBox) -> str:
    """Write the text of a re-ask."""
    errors = _join_parts([_write_line(v) for v in violations], "; ", _VIOLATIONS_CHARS_MAX)
    head = (
        f"Your previous response contained an invalid tool call. The error was: {errors}. "
        "You must respond with valid JSON matching the tool schema exactly. Available tools: "
    )
    meant = {violation.tool for violation in violations}
    tools = sorted(toolbox.tools, key=lambda tool: tool.name not in meant)
    return head + _join_parts([_write_signature(tool) for tool in tools], ", ", _REASK_CHARS_MAX - len(head) - 1) + "."


def _write_line(violation: Violation) -> str:
    where = f"{violation.path} " if violation.path else ""
    who = f"(in {violation.tool}) " if violation.tool and "/arguments" in violation.path else ""
    return f"{where}{who}{violation.message}".rstrip(".")


def _join_parts(parts: Sequence[str], separator: str, chars: int) -> str:
    """Join as many parts as there is room for, and how many more there are. The first is always there."""
    if not parts:
        return "none"
    limit = chars - _MORE_CHARS
    found = [parts[0][:limit]]
    for i, part in enumerate(parts[1:], 1):
        if sum(map(len, found)) + len(separator) * i + len(part) > limit:
            return separator.join([*found, f"and {len(parts) - i} more"])
        found.append(part)
    return separator.join(found)


def _write_signature(tool: Tool) -> str:
    properties, required = tool.parameters.get("properties", {}), dict.fromkeys(tool.required)
    parts: list[str] = []
    chars = 0
    for key in chain(required, (key for key in properties if key not in required)):
        parts.append(f"{key}{'' if key in required else '?'}: {_write_type(properties.get(key))}")
        chars += len(parts[-1])
        if chars > _SIGNATURE_CHARS_MAX:
            break
    return f"{tool.name}({', '.join(parts)})"[:_SIGNATURE_CHARS_MAX]


def _write_type(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "any"
    if "enum" in schema:
        return "|".join(map(repr, schema["enum"][:12]))
    kind = schema.get("type", "any")
    return "|".join(kind) if isinstance(kind, list) else str(kind)
