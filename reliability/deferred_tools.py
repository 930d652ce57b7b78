"""Defer tools: keep in full those that a session uses or names, and list the rest behind one tool of the server's own.

A *load* is a call of that loader: the server answers it with the definitions (`deployments/request/tool_loading.py`),
behind the conversation, so that all before stays a prefix. Figures: docs/decisions/058-tool-diet.md.

Invariants: each tool is kept or listed by its name; a call of the loader is never delivered; a call of a listed tool is
judged like any other.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reliability.loops.content import drop_elements
from reliability.tool_calls import Extraction, Malformed, RawCall
from reliability.tools.check.complaints import report_unknown_tool
from reliability.tools.extract.text import read_arguments
from reliability.tools.schema.toolbox import ToolBox
from reliability.types import ChatRequest

Message = Mapping[str, Any]
Definition = Mapping[str, Any]

LOADERS = ("load_tools", "load_tool_definitions")
TOOLS_MIN, _CHARS_MIN = 6, 7_500
SYSTEM_NAMED_CHARS_MAX, SYSTEM_NAMED_CHARS_ALL = 3_000, 8_000  # about 700 tokens, two loads; and 2,000
ROUNDS_MAX = 3
NAMES_MAX = 8
LINE_CHARS_MAX, LIST_CHARS_MAX = 72, 8_000
_NO_MORE = "no more tools can be loaded: call one that you have read"
_CALL_NOW = "Now call the tool that the request needs."
_NO_NAMES = 'Say which tools to load: {"names": ["..."]}, with names from the list.'
_ABOUT = (
    "Load the definitions of further tools. The tools listed here exist too; load one before you call it. No other "
    "tool exists.\n"
)
_READERS = ("system", "developer", "user")  # whose words name tools
_AROUND = " \n\t[]\"'"  # of a name in a list that came as a text, as some formats write it
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]*[A-Za-z0-9_]")
_FIRST = re.compile(r"[^\n]*?(?:[.!?](?=\s|$)|(?=\n|$))")


def choose_loader(request: ChatRequest) -> str:
    """Return the name of the loader; empty where tools are few or short, calls are forbidden, or a form is wanted."""
    form = (request.response_format or {}).get("type", "text")
    if len(request.tools) < TOOLS_MIN or request.tool_choice == "none" or form != "text":
        return ""
    if sum(map(_measure, request.tools)) < _CHARS_MIN:
        return ""
    taken = {read_name(tool) for tool in request.tools}
    return next((name for name in LOADERS if name not in taken), "")


def choose_kept(messages: Sequence[Message], tools: Sequence[Definition], tool_choice: Any) -> frozenset[str]:
    """Choose the tools that stay in full: called ones, those named in its user's words, and the one that `tool_choice`
    names. Of those that only its system or its harness names, which name most tools: the short ones, most often named
    first, while there is room."""
    said, named = {find_named(tool_choice)}, Counter[str]()
    for message in messages:
        said.update(map(find_named, message.get("tool_calls") or ()))
        role = message.get("role")
        if role in _READERS:
            text = "\n".join(list_texts(message.get("content")))
            named.update(_WORD.findall(text))
            said.update(_WORD.findall(drop_elements(text)) if role == "user" else ())
    chars = {read_name(tool): _measure(tool) for tool in tools}
    room = SYSTEM_NAMED_CHARS_ALL
    for name in sorted(chars.keys() & named.keys() - said, key=lambda name: (-named[name], chars[name], name)):
        if chars[name] <= min(room, SYSTEM_NAMED_CHARS_MAX):
            said.add(name)
            room -= chars[name]
    return frozenset(said & chars.keys())


def find_named(value: Any) -> str:
    """Return the tool that a call calls, or `tool_choice` demands; empty where it is none."""
    function = value.get("function") if isinstance(value, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else ""


def build_loader(name: str, listed: Sequence[Definition]) -> dict[str, Any]:
    """Build the definition of the loader, with a line for each tool that is listed."""
    names = [read_name(tool) for tool in listed]
    room = (LIST_CHARS_MAX - sum(map(len, names))) // max(1, len(names))
    chars = min(LINE_CHARS_MAX, max(0, room))
    lines = [f"- {read_name(tool)}: {_shorten(tool, chars)}".removesuffix(": ") for tool in listed]
    array = {"type": "array", "items": {"type": "string"}, "description": "names from the list"}
    parameters = {"type": "object", "properties": {"names": array}, "required": ["names"]}
    function = {"name": name, "description": _ABOUT + "\n".join(lines), "parameters": parameters}
    return {"type": "function", "function": function}


def take_load(
    loader: str, box: ToolBox, found: Extraction, native: Sequence[RawCall], *, may_load: bool = True
) -> tuple[tuple[str, ...] | None, Extraction, Sequence[RawCall]]:
    """Take the loads out of an answer's calls. Return the names that they ask for, and what is left. The names are None
    without a load, and beside other calls. Where it `may_load` no more, a load is a call that can't be read, unquoted.
    """
    if not loader:
        return None, found, native
    calls = (*found.calls, *native)
    loads = [call for call in calls if (tool := box.find(call.name)) is not None and tool.name == loader]
    quoted = [replace(one, raw="") if loader in one.raw.lower() else one for one in found.malformed]
    found = replace(found, malformed=tuple(quoted))
    if not loads:
        return None, found, native
    found = replace(found, calls=tuple(call for call in found.calls if call not in loads))
    others = [call for call in native if call not in loads]
    if found.calls or others or found.malformed:
        return None, found, others
    if not may_load:
        return None, replace(found, malformed=(Malformed(raw="", reason=_NO_MORE, format=loads[0].format),)), others
    return tuple(dict.fromkeys(name for call in loads for name in _read_names(call.arguments))), found, others


def build_load(loader: str, call_id: str, names: Sequence[str], text: str, result: str) -> tuple[Message, Message]:
    """Build the two messages of a load: the model's call behind its `text`, and the server's result."""
    function = {"name": loader, "arguments": json.dumps({"names": list(names)}, ensure_ascii=False)}
    call = {"id": call_id, "type": "function", "function": function}
    return (
        {"role": "assistant", "content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    )


def answer_load(names: Sequence[str], tools: Sequence[Definition], box: ToolBox) -> str:
    """Write the result of a load: the definitions, one a line, a word, then what is wrong with the other names."""
    found = {name: box.find(name) for name in names[:NAMES_MAX]}
    wanted = {tool.name for tool in found.values() if tool is not None}
    lines = [json.dumps(tool, ensure_ascii=False) for tool in tools if read_name(tool) in wanted]
    lines += [_CALL_NOW] if lines else []
    lines += [f"{report_unknown_tool(name, 0, box).message}." for name, tool in found.items() if tool is None]
    if len(names) > NAMES_MAX:
        lines.append(f"Only the first {NAMES_MAX} names were read: load fewer tools at once.")
    return "\n".join(lines) or _NO_NAMES


def read_name(tool: Definition) -> str:
    """Read the name of a tool as its client has declared it."""
    return str(_read_function(tool).get("name"))


def _measure(tool: Definition) -> int:
    return len(json.dumps(tool, ensure_ascii=False))


def _read_function(tool: Definition) -> Mapping[str, Any]:
    function = tool.get("function")
    return function if isinstance(function, Mapping) else tool


def _shorten(tool: Definition, chars: int) -> str:
    """Return the first sentence of a tool's description, cut between words."""
    text = _read_function(tool).get("description")
    found = _FIRST.match(text.strip()) if isinstance(text, str) else None
    first = found[0] if found else ""
    return first if len(first) <= chars else first[:chars].rpartition(" ")[0]


def list_texts(content: Any) -> list[str]:
    """List the texts of a message's content."""
    parts = content if isinstance(content, list) else [content]
    texts = (part.get("text") if isinstance(part, Mapping) else part for part in parts)
    return [text for text in texts if isinstance(text, str)]


def _read_names(arguments: Any) -> list[str]:
    """Read the names that a load asks for, in whatever form the model has written them."""
    value = arguments
    if isinstance(arguments, str):
        read = read_arguments(arguments)
        value = read if isinstance(read, str) else read.value
    values = list(value.values()) if isinstance(value, Mapping) else [value]
    flat = [one for each in values for one in (each if isinstance(each, list) else [each])]
    words = (word.strip(_AROUND) for one in flat if isinstance(one, str) for word in one.split(","))
    return [word for word in words if word]
