"""Messages of a chat completion whose parts are of another dialect, with the parts that say the same here.

Clients that change between the APIs send parts of Responses and blocks of Messages. Unknown parts stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deployments.api.forms.message_blocks import (
    BREAK,
    Message,
    is_left_out,
    join_parts,
    make_call,
    make_parts,
    make_text,
    translate_result,
)
from deployments.api.forms.past import Past, find_user
from deployments.api.forms.response_parts import read_part
from deployments.errors import ApiError

_OF_RESPONSES = ("input_text", "output_text", "input_image", "input_file")
_OF_MESSAGES = ("image", "document")
_THOUGHTS = ("reasoning_content", "reasoning")


def read_foreign_parts(messages: Sequence[Message], notes: dict[str, None]) -> list[Message]:
    """Read the parts of all messages. `notes` takes what is left out. Raises `ApiError`: `invalid_request` or
    `unsupported`, with the part's path."""
    asked = find_user(messages), len(messages) - 1
    return [
        read
        for at, message in enumerate(messages)
        for read in _read_message(message, f"messages.{at}.content", Past(notes, asks=at in asked))
    ]


def _read_message(message: Message, path: str, past: Past) -> Iterator[Message]:
    content, role = message.get("content"), message["role"]
    if not isinstance(content, list):
        yield message
        return
    if role == "tool" and any(part["type"] == "tool_result" for part in content):
        yield from _read_results(message, path, past)
        return
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    results: list[Message] = []
    thoughts: list[str] = []
    for at, part in enumerate(content):
        try:
            if part["type"] == "tool_result" and role == "user":
                result, shown = translate_result(part, f"{path}.{at}", past)
                results.append(result)
                parts += shown
            elif part["type"] == "tool_use" and role == "assistant":
                calls.append(make_call(part, f"{path}.{at}"))
            elif part["type"] == "thinking" and role == "assistant" and isinstance(part.get("thinking"), str):
                thoughts.append(part["thinking"])
            elif role != "assistant" or not is_left_out(part):
                parts += _read_part(part, f"{path}.{at}")
        except ApiError as error:
            parts += past.stand_in(error, part, answer=role == "assistant")
    yield from results
    if parts == content:
        yield message
    elif parts or not results:
        yield _rebuild(message, parts, calls, BREAK.join(filter(None, thoughts)))


def _rebuild(message: Message, parts: list[dict[str, Any]], calls: list[dict[str, Any]], reasoning: str) -> Message:
    """Return the message with these parts; calls and reasoning that it has in fields of its own stay."""
    calls = message.get("tool_calls") or calls
    rebuilt = {**message, "content": parts or (None if calls else "")}
    if calls:
        rebuilt["tool_calls"] = calls
    if reasoning and not any(message.get(name) for name in _THOUGHTS):
        rebuilt["reasoning_content"] = reasoning
    return rebuilt


def _read_results(message: Message, path: str, past: Past) -> Iterator[Message]:
    """Read a tool message that holds results, one message a call. A lone result answers the call that the message
    names."""
    content = message["content"]
    ids = [part.get("tool_use_id") for part in content if part["type"] == "tool_result"]
    own = message.get("tool_call_id") or next((id for id in ids if isinstance(id, str)), "")
    read: dict[str, list[dict[str, Any]]] = {}
    for at, part in enumerate(content):
        call_id = own
        try:
            if part["type"] == "tool_result":
                call_id = own if len(ids) == 1 else part.get("tool_use_id") or own
                result, parts = translate_result({**part, "tool_use_id": call_id}, f"{path}.{at}", past)
                said = result["content"]
                if isinstance(said, str):
                    said = [{"type": "text", "text": said}] if said else []
                parts = [*said, *parts]
            else:
                parts = _read_part(part, f"{path}.{at}")
        except ApiError as error:
            call_id, parts = own, past.stand_in(error, part)
        read.setdefault(call_id, []).extend(parts)
    for call_id, parts in read.items():
        yield {**message, "tool_call_id": call_id, "content": join_parts(parts)}


def _read_part(part: dict[str, Any], path: str) -> list[dict[str, Any]]:
    kind, url = part["type"], part.get("image_url")
    if kind in _OF_MESSAGES and isinstance(part.get("source"), Mapping):
        return make_parts(part, path)
    if kind == "search_result" and isinstance(part.get("content"), list):
        return make_parts(part, path)
    if kind == "text" and "citations" in part:
        return [make_text(part, path)]
    if kind == "input_image" and isinstance(url, Mapping):
        return [{"type": "image_url", "image_url": url}]
    if kind in _OF_RESPONSES:
        return [read_part(part, path)]
    if kind == "image_url" and isinstance(url, str):
        return [read_part({**part, "type": "input_image"}, path)]
    return [part]
