"""Messages of a chat completion that are none, in its past: what can be read of each stays, and the rest is noted.

Invariant: a conversation in which nothing is wrong isn't looked at here, and what the newest turn asks is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deployments.api.forms.past import Past, find_user
from deployments.api.forms.tool_forms import refuse_kind
from deployments.errors import ApiError, refuse
from deployments.work.json_text import write_json

Check = Callable[[Any, str], None]


def drop_unreadable(messages: Sequence[Any], check: Check, notes: dict[str, None]) -> list[Any]:
    """Return the messages as far as `check` takes them. `notes` takes what is left out. Raises `ApiError`: what the
    newest turn asks is wrong."""
    asked = find_user(messages), len(messages) - 1
    read: list[Any] = []
    for at, message in enumerate(messages):
        past, path = Past(notes, asks=at in asked), f"messages.{at}"
        try:
            check(message, path)
        except ApiError as error:
            if past.asks or not isinstance(message, Mapping) or not _is_fine(check, {"role": message.get("role")}):
                past.leave_out(error)
                continue
            read.append(_drop_fields(message, check, path, past))
        else:
            read.append(message)
    return read


def check_parts(message: Mapping[str, Any], path: str) -> None:
    """Check that calls and parts have the form that every chat template and API relies on."""
    for at, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function")
        if call.get("type") == "custom":
            raise refuse_kind("custom", f"{path}.tool_calls.{at}")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise refuse(f"{path}.tool_calls.{at}.function.name", "a function with a name is needed")
    for at, part in enumerate(message["content"] if isinstance(message.get("content"), list) else ()):
        if not isinstance(part.get("type"), str):
            raise refuse(f"{path}.content.{at}.type", "each part needs a type")


def _drop_fields(message: Mapping[str, Any], check: Check, path: str, past: Past) -> dict[str, Any]:
    """Return the message without what is wrong: entries of its lists, else whole fields."""
    kept: dict[str, Any] = {}
    for name, value in message.items():
        is_whole, entries = not isinstance(value, list), list[Any]()
        for entry in [value] if is_whole else map(_read_custom, value):
            try:
                check({"role": message["role"], name: entry if is_whole else [entry]}, path)
            except ApiError as error:
                stub = past.stand_in(error, entry, answer=message["role"] == "assistant")
                entries += stub if name == "content" and not is_whole else []
            else:
                entries.append(entry)
        if entries or not is_whole:
            kept[name] = entries[0] if is_whole else entries
    return kept


def _is_fine(check: Check, message: Any) -> bool:
    try:
        check(message, "")
    except ApiError:
        return False
    return True


def _read_custom(call: Any) -> Any:
    """Return the call of a custom tool as Responses has it: that of a function with one `input`."""
    custom = call.get("custom") if isinstance(call, Mapping) else None
    if not isinstance(custom, Mapping) or call.get("type") != "custom":
        return call
    arguments = write_json({"input": custom.get("input")}).decode()
    return {"id": call.get("id"), "type": "function", "function": {"name": custom.get("name"), "arguments": arguments}}
