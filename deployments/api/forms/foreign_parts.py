"""Messages of a chat completion whose parts are of another dialect, with the parts that say the same here.

A client that changes between the APIs sends what it holds: parts of Responses, blocks of Messages. Their own readers
read them. A part that is chat completions' own, or unknown, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deployments.api.forms.message_blocks import Message, make_call, make_parts, translate_result
from deployments.api.forms.response_parts import read_part

_OF_RESPONSES = ("input_text", "output_text", "input_image", "input_file")
_OF_MESSAGES = ("image", "document")


def read_foreign_parts(messages: Sequence[Message]) -> list[Message]:
    """Read the parts of all messages. Raises `ApiError`: `invalid_request` or `unsupported`, with the part's path."""
    return [read for at, message in enumerate(messages) for read in _read_message(message, f"messages.{at}.content")]


def _read_message(message: Message, path: str) -> Iterator[Message]:
    content, role = message.get("content"), message["role"]
    if not isinstance(content, list):
        yield message
        return
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    results: list[Message] = []
    for at, part in enumerate(content):
        if part["type"] == "tool_use" and role == "assistant":
            calls.append(make_call(part, f"{path}.{at}"))
        elif part["type"] == "tool_result" and role == "user":
            result, shown = translate_result(part, f"{path}.{at}")
            results.append(result)
            parts += shown
        else:
            parts += _read_part(part, f"{path}.{at}")
    yield from results
    if calls:
        yield {**message, "content": parts or None, "tool_calls": message.get("tool_calls") or calls}
    elif parts or not results:
        yield message if parts == content else {**message, "content": parts}


def _read_part(part: dict[str, Any], path: str) -> list[dict[str, Any]]:
    kind, url = part["type"], part.get("image_url")
    if kind in _OF_MESSAGES and isinstance(part.get("source"), Mapping):
        return make_parts(part, path)
    if kind == "input_image" and isinstance(url, Mapping):
        return [{"type": "image_url", "image_url": url}]
    if kind in _OF_RESPONSES:
        return [read_part(part, path)]
    if kind == "image_url" and isinstance(url, str):
        return [read_part({**part, "type": "input_image"}, path)]
    return [part]
