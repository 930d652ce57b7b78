"""`tools` of a message, inwards: translated, deferred until the client's own search names them, or left out.

A tool with `defer_loading` is shown once a `tool_reference` in a result names it: its definition then stands in that
result, so that all before stays what it was (Claude Code).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.api.forms.tool_forms import Tool, leave_out_served, refuse_kind
from deployments.errors import refuse
from reliability.deferred_tools import read_name

Definition = dict[str, Any]

SEARCH = "tool_search_tool_"
_NOTED = ("allowed_callers", "input_examples")
WRITTEN_CHARS_MAX = 2_000_000  # of the definitions that stand in results, each as often as it stands there


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTools:
    """The tools as chat completions have them. `places`: where each stood in the client's list; `searched`: those whose
    definitions stand in the `messages`, in `written_chars` together."""

    tools: list[Definition]
    places: tuple[int, ...]
    searched: frozenset[str]
    messages: Sequence[Any]
    written_chars: int
    notes: tuple[str, ...]


def read_message_tools(
    tools: Sequence[Tool] | None, messages: Sequence[Any], dropped: Sequence[Any] = ()
) -> MessageTools:
    """Read the tools of a request; those that were found in `dropped` messages are declared like any other. Raises
    `ApiError`: `invalid_tools` or `unsupported`, with the field in `param`."""
    tools = tools or ()
    own, notes = leave_out_served(tools)
    unread = [name for name in _NOTED if any(tool.get(name) is not None for _, tool in own)]
    read = [(place, _translate_tool(tool, f"tools.{place}")) for place, tool in own]
    deferred = {str(tool.get("name")) for tool in tools if tool.get("defer_loading") is True}
    if any(str(tool.get("type")).startswith(SEARCH) for tool in tools) or len(deferred) == len(tools):
        deferred = set()  # nothing here could load them
    deferred -= {str(block.get("tool_name")) for block in _list_references(dropped)}
    named = {str(block.get("tool_name")) for block in _list_references(messages)} if deferred else set()
    loaded, hidden = deferred & named, deferred - named
    searched = {name: tool for _, tool in read if (name := read_name(tool)) in loaded}
    shown = [(place, tool) for place, tool in read if read_name(tool) not in hidden]
    texts = {name: json.dumps(tool, ensure_ascii=False) for name, tool in searched.items()}
    written_chars = _measure_written(messages, texts)
    return MessageTools(
        tools=[tool for _, tool in shown],
        places=tuple(place for place, _ in shown),
        searched=frozenset(searched),
        messages=[_write_out(message, texts) for message in messages] if searched else messages,
        written_chars=written_chars,
        notes=(*notes, *(f"tools: {name} has no effect here" for name in unread)),
    )


def _translate_tool(tool: Tool, path: str) -> Definition:
    kind = tool.get("type")
    if kind not in (None, "custom"):
        raise refuse_kind(str(kind), path)
    if not isinstance(tool.get("input_schema"), Mapping):
        raise refuse(f"{path}.input_schema", "a JSON schema is needed", "invalid_tools")
    function = {"name": tool.get("name"), "description": tool.get("description"), "parameters": tool["input_schema"]}
    if isinstance(tool.get("strict"), bool):
        function["strict"] = tool["strict"]
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def _list_results(message: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    content = message.get("content") if isinstance(message, Mapping) else None
    for at, block in enumerate(content if isinstance(content, list) else ()):
        if isinstance(block, Mapping) and block.get("type") == "tool_result" and isinstance(block.get("content"), list):
            yield at, block


def _is_reference(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "tool_reference"


def _list_references(messages: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    for message in messages:
        for _, result in _list_results(message):
            yield from filter(_is_reference, result["content"])


def _measure_written(messages: Sequence[Any], texts: Mapping[str, str]) -> int:
    """Return how long the definitions are together, before any is written out. Raises `ApiError`: too long."""
    chars = 0
    for message in messages if texts else ():
        for _, result in _list_results(message):
            names = {_find_named(block, texts) for block in result["content"]}
            chars += sum(len(texts[name]) for name in names if name)
    if chars > WRITTEN_CHARS_MAX:
        words = f"the definitions of the tools that tool_reference blocks name have {chars:,} characters together"
        raise refuse("messages", f"{words}, and may have {WRITTEN_CHARS_MAX:,}: leave out old results of searches")
    return chars


def _write_out(message: Any, texts: Mapping[str, str]) -> Any:
    """Return the message with the definition in each reference's place, once for each tool of a result."""
    changed = dict(_list_results(message))
    if not any(map(_is_reference, (block for result in changed.values() for block in result["content"]))):
        return message
    content = list(message["content"])
    for at, result in changed.items():
        content[at] = {**result, "content": list(_write_references(result["content"], texts))}
    return {**message, "content": content}


def _write_references(blocks: Sequence[Any], texts: Mapping[str, str]) -> Iterator[Any]:
    written: set[str] = set()
    for block in blocks:
        name = _find_named(block, texts)
        if not name:
            yield block
        elif name not in written:
            written.add(name)
            yield {"type": "text", "text": texts[name]}


def _find_named(block: Any, texts: Mapping[str, str]) -> str:
    """Return the tool whose definition stands for this block; empty where there is none."""
    name = block.get("tool_name") if _is_reference(block) else None
    return name if isinstance(name, str) and name in texts else ""
