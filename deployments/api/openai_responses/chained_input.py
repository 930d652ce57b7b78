"""What a request refers to: the response that it goes on from, and items of others by their names.

Invariants: a reference to something that isn't found is an error; no request holds more of a record than all of it,
since what is recalled is reserved by its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deployments.api.openai_chat import MESSAGES_MAX
from deployments.api.openai_responses.field_paths import refuse
from deployments.api.openai_responses.item_ids import find_response, is_response_id
from deployments.api.openai_responses.response_items import ItemHistory
from deployments.api.openai_responses.stored_record import NeedsRecall, Recalled, open_record
from deployments.errors import ApiError

REFERENCES_MAX = 256


def check_recalled(previous: str | None, given: str | Sequence[Any] | None, recalled: Recalled | None) -> Recalled:
    """Return what a request may refer to; nothing, where it refers to nothing. Raises NeedsRecall: it refers to
    something, and nothing was recalled. ApiError: what it refers to can't be one of this server's."""
    if recalled is not None:
        return recalled
    names = {} if given is None or isinstance(given, str) else dict(_list_references(given))
    if len(names) > REFERENCES_MAX:
        raise refuse("input", f"there may be at most {REFERENCES_MAX} references to items")
    if previous is None and not names:
        return Recalled()
    if previous is not None and not is_response_id(previous):
        words = f"Previous response with id '{previous[:128]}' not found."
        raise ApiError("previous_response_not_found", words, param="previous_response_id")
    raise NeedsRecall(previous, names)


def _list_references(given: Sequence[Any]) -> list[tuple[str, str]]:
    """List the names of the items that are referred to, by their paths; each once, as at OpenAI."""
    found: list[tuple[str, str]] = []
    names: set[str] = set()
    for place, item in enumerate(given):
        if _is_reference(item):
            path = f"input.{place}.id"
            if not isinstance(item.get("id"), str) or find_response(item["id"]) is None:
                raise _deny(item.get("id"), path)
            if item["id"] in names:
                words = f"Duplicate item found with id {item['id']}. Remove duplicate items from your input and retry."
                raise ApiError("invalid_request", words, param="input")
            names.add(item["id"])
            found.append((path, item["id"]))
    return found


def _is_reference(item: Any) -> bool:
    if not isinstance(item, Mapping):
        return False
    return item.get("type") == "item_reference" or (
        item.get("type") is None and set(item) <= {"id", "type"} and "id" in item
    )


def _deny(item_id: Any, path: str) -> ApiError:
    if not isinstance(item_id, str):
        return refuse(path, "the name of an item is needed")
    return ApiError("not_found", f"Item with id '{item_id[:128]}' not found.", param=path)


def resolve_items(given: str | Sequence[Any] | None, recalled: Recalled) -> str | list[Any]:
    """Put the items themselves where they are referred to. Raises as `check_recalled`."""
    if given is None or isinstance(given, str):
        return given or []
    known: dict[str, Any] = {}
    for record in recalled.others.values():
        opened = open_record(record)
        known |= {item["id"]: item for item in (*opened["input"], *opened["response"]["output"])}
    resolved: list[Any] = []
    for place, item in enumerate(given):
        found = item
        if _is_reference(item):
            path, item_id = f"input.{place}.id", item.get("id")
            found = known.get(item_id)
            if found is None:
                raise _deny(item_id, path)
        resolved.append(found)
    return resolved


def add_chain(history: ItemHistory, recalled: Recalled) -> None:
    """Add what a request goes on from, the oldest first. Raises `ApiError`: it is more than a request may show."""
    for record in recalled.chain:
        if len(history.messages) > MESSAGES_MAX:
            raise refuse("previous_response_id", f"the conversation has more than {MESSAGES_MAX} messages")
        opened = open_record(record)
        history.add(opened["input"], "previous_response_id")
        history.add(opened["response"]["output"], "previous_response_id")
