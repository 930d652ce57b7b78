"""`input`, inwards: items, and the parts of their messages, become the messages that a chat client would have sent.

An answer comes back as several items (reasoning* message* function_call*), which are one assistant message, as it was
answered. Two texts in a row are two messages, unless their names say that they are of one response. What outputs show
beside text goes into a user message behind the last of them.
Invariants: no item and no part is dropped without a note; none is refused but what the newest turn asks by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from deployments.api.forms.message_blocks import read_string
from deployments.api.forms.past import ASKED, Past
from deployments.api.forms.response_parts import read_part
from deployments.api.openai_responses.item_ids import open_seal, tag_of
from deployments.api.openai_responses.response_tools import SEARCH, ToolsRead, is_search, join_namespace, read_tools
from deployments.errors import ApiError, refuse
from deployments.work.json_text import write_json
from reliability.summaries import SUMMARY_HEAD

FOREIGN = "reasoning that another server has sealed (encrypted_content) was left out"
FOREIGN_SUMMARY = "a summary that another server has sealed (encrypted_content) was left out"
LATE_TRIGGER = "a compaction_trigger that isn't the last item was left out"
UPDATE = "items of type configuration_update were left out: send reasoning and text with the request"
# Codex has sent the item by the other names, too.
_COMPACTED = ("compaction", "compaction_summary", "context_compaction")
# Calls that OpenAI's own server ran, in a conversation that began there: their results stand in none of these items.
_HOSTED_CALLS = frozenset({
    "web_search_call", "file_search_call", "image_generation_call", "code_interpreter_call", "tool_search_call",
    "tool_search_output", "mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "program",
    "program_output",
})  # fmt: skip


@dataclass(slots=True)
class _Answer:
    """An assistant message in the making. `tag`: the response that its items name."""

    tag: str | None = None
    reasoning: list[str] = field(default_factory=list)
    contents: list[str | list[dict[str, Any]]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._join_contents()}
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = self.calls
        return message

    def _join_contents(self) -> str | list[dict[str, Any]] | None:
        if all(isinstance(content, str) for content in self.contents):
            return "".join(map(str, self.contents)) or (None if self.calls else "")
        parts: list[dict[str, Any]] = []
        for content in self.contents:
            parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
        return parts


@dataclass(slots=True)
class ItemHistory:
    """Collects items into `messages`. `notes`: what of them has no effect; `found`: the tools of the client's own
    searches, whose definitions stand in their results; `declared`: those of Codex's `additional_tools`, the newest of
    each name."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    found: list[ToolsRead] = field(default_factory=list)
    declared: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    _answer: _Answer | None = None
    _shown: list[dict[str, Any]] = field(default_factory=list)

    def add(self, items: Sequence[Any], path: str) -> None:
        """Add items, which stand at `path` in the request. Raises `ApiError`: with the path of what is wrong in the
        newest of those that ask, or in the only one."""
        newest = max((place for place, item in enumerate(items) if _asks(item)), default=len(items) - 1)
        for place, item in enumerate(items):
            past = Past(self.notes, asks=place == newest and (_asks(item) or len(items) == 1))
            try:
                self._add_item(item, f"{path}.{place}", past)
            except ApiError as error:
                past.leave_out(error)

    def close(self) -> list[dict[str, Any]]:
        """Complete the last message, and return all."""
        self._end_answer()
        self._end_outputs()
        return self.messages

    def _add_item(self, item: Any, path: str, past: Past) -> None:
        if not isinstance(item, Mapping):
            raise refuse(path, "an object is needed")
        kind = item.get("type")
        if kind is None and "role" in item:
            kind = "message"
        match kind:
            case "message":
                self._add_message(item, path, past)
            case "agent_message":  # from one of Codex's agents to another
                self._add_message({**item, "role": "user"}, path, past)
            case "reasoning":
                text = _read_reasoning(item, path)
                if text is None:
                    self.notes[FOREIGN] = None
                elif text:
                    self._join_answer(item, says=True).reasoning.append(text)
            case "function_call":
                given = item.get("arguments")
                self._add_call(item, path, given if isinstance(given, str) else write_json(given or {}).decode())
            case "custom_tool_call":
                self._add_call(item, path, orjson.dumps({"input": read_string(item, "input", path)}).decode())
            case "function_call_output" | "custom_tool_call_output":
                self._add_output(item, path)
            case "tool_search_call" if is_search(item):
                arguments = write_json(item.get("arguments") or {}).decode()
                self._add_call({**item, "name": SEARCH}, path, arguments)
            case "tool_search_output" if is_search(item):
                self._add_found(item, path, past)
            case "additional_tools":
                tools = _read_declared(item, path, past)
                self.declared |= {(str(tool.get("type")), str(tool.get("name"))): tool for tool in tools}
            case str() if kind in _COMPACTED:
                self._add_summary(item)
            case str() if kind in _HOSTED_CALLS:
                self.notes[f"items of tools that another server has run ({kind}) were left out"] = None
            case "configuration_update":
                self.notes[UPDATE] = None
            case "compaction_trigger":
                self.notes[LATE_TRIGGER] = None
            case str():
                words = f"items of type {kind[:64]!r} can't be read here; known are message, reasoning, function_call, "
                words += "function_call_output, custom_tool_call, custom_tool_call_output, compaction, item_reference"
                raise refuse(f"{path}.type", words, "unsupported")
            case _:
                raise refuse(f"{path}.type", "the type of the item is needed")

    def _add_message(self, item: Mapping[str, Any], path: str, past: Past) -> None:
        role = item.get("role")
        if role == "assistant":
            content = _read_answer(item.get("content"), f"{path}.content", past)
            self._join_answer(item, says=True).contents.append(content)
            return
        if role not in ("user", "system", "developer"):
            raise refuse(f"{path}.role", "user, assistant, system or developer is needed")
        content = _read_content(item.get("content"), f"{path}.content", past)
        self._end_answer()
        self._end_outputs()
        self.messages.append({"role": role, "content": content})

    def _add_call(self, item: Mapping[str, Any], path: str, arguments: str) -> None:
        name = read_string(item, "name", path)
        if not name:
            raise refuse(f"{path}.name", "a name is needed")
        name = join_namespace(item.get("namespace"), name)
        call = {"id": _read_call_id(item, path), "type": "function", "function": {"name": name, "arguments": arguments}}
        self._join_answer(item, says=False).calls.append(call)

    def _add_output(self, item: Mapping[str, Any], path: str) -> None:
        call_id = _read_call_id(item, path)
        text, shown = _read_output(item.get("output"), f"{path}.output", Past(self.notes))
        self._end_answer()
        # Codex adds an output of its own to those of a call, with a name and no id.
        named = {"name": item["name"]} if not call_id and isinstance(item.get("name"), str) else {}
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text, **named})
        self._shown += shown

    def _add_found(self, item: Mapping[str, Any], path: str, past: Past) -> None:
        """Add what a search has found: the definitions, a line each."""
        found = read_tools(_read_declared(item, path, past), None)
        self.found.append(found)
        text = "\n".join(write_json(tool).decode() for tool in found.tools) or "No tools were found."
        self._add_output({"call_id": item.get("call_id"), "output": text}, path)

    def _add_summary(self, item: Mapping[str, Any]) -> None:
        """Add what stands for a conversation, as a user's message: a history may end with it."""
        summary = open_seal(item.get("encrypted_content"))
        if summary is None:
            self.notes[FOREIGN_SUMMARY] = None
            return
        self._end_answer()
        self._end_outputs()
        self.messages.append({"role": "user", "content": SUMMARY_HEAD + summary})

    def _join_answer(self, item: Mapping[str, Any], *, says: bool) -> _Answer:
        """Return the message that an item of an answer belongs to. `says`: the item is no call."""
        self._end_outputs()
        tag, begun = tag_of(item.get("id")), self._answer
        has_spoken = begun is not None and bool(begun.contents) and not begun.calls
        if says and has_spoken and (tag is None or begun is None or tag != begun.tag):
            self._end_answer()
        if self._answer is None:
            self._answer = _Answer()
        self._answer.tag = tag or self._answer.tag
        return self._answer

    def _end_answer(self) -> None:
        if self._answer is not None:
            self.messages.append(self._answer.message())
            self._answer = None

    def _end_outputs(self) -> None:
        if self._shown:
            self.messages.append({"role": "user", "content": self._shown})
            self._shown = []


def _asks(item: Any) -> bool:
    """Return whether a newest turn asks by this item; it isn't read, if it is none at all."""
    if not isinstance(item, Mapping):
        return True
    return item.get("type") in (None, "message", "agent_message") and item.get("role") != "assistant"


def _read_declared(item: Mapping[str, Any], path: str, past: Past) -> list[Mapping[str, Any]]:
    """Read the tools that an item declares, but for those that this server doesn't have."""
    declared = item.get("tools")
    if not isinstance(declared, list) or not all(isinstance(tool, Mapping) for tool in declared):
        raise refuse(f"{path}.tools", "a list of tools is needed")
    had: list[Mapping[str, Any]] = []
    for tool in declared:
        try:
            read_tools([tool], None)
        except ApiError as error:
            past.leave_out(error)
        else:
            had.append(tool)
    return had


def _read_call_id(item: Mapping[str, Any], path: str) -> str:
    """Read the id of a call or output; empty where it has none (`past_calls` finds what belongs together)."""
    call_id = item.get("call_id")
    return read_string({"call_id": call_id or ""}, "call_id", path)


def _read_reasoning(item: Mapping[str, Any], path: str) -> str | None:
    """Read the reasoning itself; None where only another server could."""
    content, sealed = _read_texts(item, "content", path), item.get("encrypted_content")
    summary = _read_texts(item, "summary", path)
    if content or sealed is None:
        return "".join(content) or "\n\n".join(summary)
    return open_seal(read_string(item, "encrypted_content", path))


def _read_texts(item: Mapping[str, Any], name: str, path: str) -> list[str]:
    parts = item.get(name)
    if parts is not None and not isinstance(parts, list):
        raise refuse(f"{path}.{name}", "a list of parts is needed")
    return [
        read_string(part if isinstance(part, Mapping) else {}, "text", f"{path}.{name}.{place}")
        for place, part in enumerate(parts or ())
    ]


def _read_content(content: Any, path: str, past: Past = ASKED) -> str | list[dict[str, Any]]:
    """Read what a user, a developer or the system says. Raises `ApiError`: with the path of what is wrong."""
    parts = _read_parts(content, path, past)
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _read_answer(content: Any, path: str, past: Past = ASKED) -> str | list[dict[str, Any]]:
    """Read what the assistant has said: one text, or its parts where one is a refusal. Raises as `_read_content`."""
    parts = _read_parts(content, path, past, answer=True)
    if any(part["type"] != "text" for part in parts):
        return parts
    return "".join(part["text"] for part in parts)


def _read_output(output: Any, path: str, past: Past = ASKED) -> tuple[str, list[dict[str, Any]]]:
    """Read the output of a tool: its text, and what else it shows; of another value its JSON. Raises as
    `_read_content`."""
    if not isinstance(output, str | list | None):
        output = write_json(output).decode()
    parts = _read_parts(output, path, past)
    texts = [part["text"] for part in parts if part["type"] == "text"]
    return "\n".join(texts), [part for part in parts if part["type"] != "text"]


def _read_parts(content: Any, path: str, past: Past, *, answer: bool = False) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise refuse(path, "a text or a list of parts is needed")
    read: list[dict[str, Any]] = []
    for place, part in enumerate(content):
        try:
            read.append(read_part(part, f"{path}.{place}", answer=answer))
        except ApiError as error:
            read += past.stand_in(error, part, answer=answer)
    return read
