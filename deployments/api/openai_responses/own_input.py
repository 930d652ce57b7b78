"""The input of a request as it is stored: the items that the request itself brought, each complete with a name.

What a client may leave out is filled in (`type`, `id`, `status`, the list around a text), so that `input_items` lists
what OpenAI's typed models read. What came by `previous_response_id` isn't repeated; items that a reference names are
stored as if they had been sent, since who is referred to may be forgotten first.

What must never happen: two items of one name in one list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deployments.api.openai_responses.item_ids import name_input

__all__ = ["complete_items"]

ID_CHARS_MAX = 128
WITH_STATUS = ("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")


def complete_items(given: str | Iterable[Mapping[str, Any]], tag: str) -> list[dict[str, Any]]:
    """Complete the items of the response with this tag."""
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    names: set[str] = set()
    completed: list[dict[str, Any]] = []
    for place, item in enumerate(items):
        name = item.get("id")
        if not isinstance(name, str) or not 0 < len(name) <= ID_CHARS_MAX or name in names:
            name = name_input(tag, place)
        names.add(name)
        completed.append(_complete_item(item) | {"id": name})
    return completed


def _complete_item(item: Mapping[str, Any]) -> dict[str, Any]:
    kind = item.get("type") or "message"
    complete = {**item, "type": kind}
    if kind in WITH_STATUS:
        complete["status"] = item.get("status") or "completed"
    if kind == "message":
        complete["content"] = _complete_content(item.get("content"), answer=item.get("role") == "assistant")
    elif kind == "reasoning":
        complete["summary"] = item.get("summary") or []
    return complete


def _complete_content(content: Any, *, answer: bool) -> list[Any]:
    kind = "output_text" if answer else "input_text"
    parts = [{"type": kind, "text": content}] if isinstance(content, str) else content
    return [_complete_part(part, answer=answer) for part in parts]


def _complete_part(part: Mapping[str, Any], *, answer: bool) -> Mapping[str, Any]:
    if part["type"] == "input_image":
        return {"detail": "auto", **part}
    if part["type"] in ("input_text", "output_text", "text"):
        typed = {**part, "type": "output_text" if answer else "input_text"}
        return {"annotations": [], **typed} if answer else typed
    return part
