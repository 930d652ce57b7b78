"""A stored response as bytes: its own input, complete with names, and the response; and what a request needs of others.

Where a body continues a response (`previous_response_id`) or refers to items of others (`item_reference`),
`parse_response` raises `NeedsRecall`, and is called again with `Recalled`. Only items that a reference names are stored
again.
Invariants: no two items of a list have one name; no record takes more room than its bound when it is opened again; a
reference to something that isn't found is an error; a user's messages leave `compact` as they came.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deployments.api.forms.past import Past
from deployments.api.openai_chat import MESSAGES_MAX
from deployments.api.openai_responses.item_ids import is_response_id, tag_of
from deployments.api.openai_responses.response_items import ItemHistory
from deployments.errors import ApiError, refuse
from deployments.work.json_text import read_json
from reliability.summaries import SUMMARY_ORDER

# Of one response: its own input, its output and what it echoes.
RECORD_BYTES_MAX = 4 * 1024 * 1024
_ID_CHARS_MAX = 128
_CALLS = ("function_call", "custom_tool_call", "tool_search_call")
_WITH_STATUS = ("message", *_CALLS, "function_call_output", "custom_tool_call_output", "tool_search_output")


class NeedsRecall(Exception):
    """The body goes on from a response, or refers to items of others: `items` are their names by their paths."""

    def __init__(self, previous: str | None, items: Mapping[str, str]) -> None:
        super().__init__(previous, dict(items))
        self.previous, self.items = previous, dict(items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """What was found. `chain`: the records that the request continues, the oldest first, in the session `session`;
    `others`: records of the responses whose items it refers to, by their ids. `size`: of all, opened, in bytes."""

    chain: tuple[bytes, ...] = ()
    session: str | None = None
    others: Mapping[str, bytes] = field(default_factory=dict)
    size: int = 0


def write_record(items: bytes, response: bytes) -> tuple[int, bytes]:
    """Write a record; return its size, opened, and itself."""
    data = b'{"input":' + items + b',"response":' + response + b"}"
    return len(data), zlib.compress(data, 1)


def count_used_tokens(record: bytes) -> int:
    """Return the tokens of a response's prompt and answer, as its tier counted them; 0 where it says nothing."""
    usage = open_record(record)["response"].get("usage") or {}
    return int(usage.get("total_tokens") or 0)


def open_record(record: bytes) -> dict[str, Any]:
    """Open a record that `write_record` has written."""
    opener = zlib.decompressobj()
    data = opener.decompress(record, 2 * RECORD_BYTES_MAX)
    if not opener.eof:
        raise ValueError("a stored response is larger than it may be")
    return dict(read_json(data))


def complete_items(given: str | Iterable[Mapping[str, Any]], tag: str) -> list[dict[str, Any]]:
    """Complete the items of the response with this tag."""
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    items = [item for item in items if isinstance(item, Mapping)]
    names: set[str] = set()
    completed: list[dict[str, Any]] = []
    for place, item in enumerate(items):
        name = item.get("id")
        if not isinstance(name, str) or not 0 < len(name) <= _ID_CHARS_MAX or name in names:
            name = f"in_{tag}_{place}"
        names.add(name)
        completed.append(_complete_item(item) | {"id": name})
    return completed


def _complete_item(item: Mapping[str, Any]) -> dict[str, Any]:
    kind = item.get("type") or "message"
    known = kind in _WITH_STATUS or kind == "reasoning"
    complete = {**(_drop_nulls(item) if known else item), "type": kind}
    if kind in _WITH_STATUS:
        complete["status"] = item.get("status") or "completed"
    if kind == "message":
        answer, content = item.get("role") == "assistant", item.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": str(content or "")}]
        complete["content"] = [_complete_part(part, answer=answer) for part in parts if isinstance(part, Mapping)]
    elif isinstance(item.get("output"), list):
        complete["output"] = [
            _complete_part(part, answer=False) for part in item["output"] if isinstance(part, Mapping)
        ]
    elif kind == "reasoning":
        complete["summary"] = item.get("summary") or []
    return complete


def _drop_nulls(given: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the keys that say nothing; a search's `call_id` may be null."""
    return {key: value for key, value in given.items() if value is not None or key == "call_id"}


def _complete_part(part: Mapping[str, Any], *, answer: bool) -> Mapping[str, Any]:
    part = _drop_nulls(part)
    if part.get("type") == "input_image":
        return {"detail": "auto", **part}
    if part.get("type") in ("input_text", "output_text", "text"):
        typed = {**part, "type": "output_text" if answer else "input_text"}
        return {"annotations": [], "logprobs": [], **typed} if answer else typed
    return part


_REFERENCES_MAX = 2_048


def check_recalled(previous: str | None, given: str | Sequence[Any] | None, recalled: Recalled | None) -> Recalled:
    """Return what a request may refer to. Raises NeedsRecall: it refers to something, and nothing was recalled.
    ApiError: what it refers to can't be one of this server's."""
    if recalled is not None:
        return recalled
    names = {} if given is None or isinstance(given, str) else dict(_list_references(given))
    if len(names) > _REFERENCES_MAX:
        raise refuse("input", f"there may be at most {_REFERENCES_MAX} references to items")
    if previous is None and not names:
        return Recalled()
    if previous is not None and not is_response_id(previous):
        words = f"Previous response with id '{previous[:128]}' not found."
        raise ApiError("previous_response_not_found", words, param="previous_response_id")
    raise NeedsRecall(previous, names)


def _list_references(given: Sequence[Any]) -> list[tuple[str, str]]:
    """List the names of this server's items that are referred to, by their paths; each once."""
    named = ((f"input.{place}.id", item.get("id")) for place, item in enumerate(given) if _is_reference(item))
    return [(path, item_id) for item_id, path in {name: path for path, name in named if tag_of(name)}.items()]


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


def resolve_items(given: str | Sequence[Any] | None, recalled: Recalled, notes: dict[str, None]) -> str | list[Any]:
    """Put the items themselves where they are referred to, each once: else 19 kB of references made 900 MB of messages.
    `notes` takes those that aren't found. Raises `ApiError`: it is the last item that isn't."""
    if given is None or isinstance(given, str):
        return given or []
    known: dict[str, Any] = {}
    for record in recalled.others.values():
        opened = open_record(record)
        known |= {item["id"]: item for item in (*opened["input"], *opened["response"]["output"])}
    resolved: list[Any] = []
    for place, item in enumerate(given):
        item_id = item.get("id") if _is_reference(item) else None
        if not _is_reference(item):
            resolved.append(item)
        elif isinstance(item_id, str) and item_id in known:
            resolved.append(known.pop(item_id))
        else:
            Past(notes, asks=place == len(given) - 1).leave_out(_deny(item_id, f"input.{place}.id"))
    return resolved


def add_chain(history: ItemHistory, recalled: Recalled) -> None:
    """Add what a request goes on from, the oldest first. Raises `ApiError`: it is more than a request may show."""
    for record in recalled.chain:
        if len(history.messages) > MESSAGES_MAX:
            raise refuse("previous_response_id", f"the conversation has more than {MESSAGES_MAX} messages")
        opened = open_record(record)
        history.add(opened["input"], "previous_response_id")
        history.add(opened["response"]["output"], "previous_response_id")


# A client asks for a summary, which stands for the conversation from then on, by `POST /v1/responses/compact` or by a
# last item of this type. Both are answered with a `compaction` item, whose `encrypted_content` is the sealed summary.
_TRIGGER = "compaction_trigger"


def split_trigger(given: str | Sequence[Any]) -> tuple[str | Sequence[Any], bool]:
    """Return the items without the trigger at their end, and whether there was one."""
    last = given[-1] if given and not isinstance(given, str) else None
    triggered = isinstance(last, Mapping) and last.get("type") == _TRIGGER
    return (given[:-1] if triggered else given), triggered


def order_summary(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a chat completion that writes this one's summary. Its tools are forbidden, and stay
    declared: some hosted models take no calls in a history without them."""
    without = ("response_format", "logprobs", "top_logprobs", "verbosity", "parallel_tool_calls")
    left = {name: value for name, value in chat.items() if name not in without}
    choice = {"tool_choice": "none"} if chat.get("tools") else {}
    return left | {"messages": [*chat["messages"], {"role": "user", "content": SUMMARY_ORDER}]} | choice


def list_user_items(chain: Iterable[bytes], given: str | Sequence[Any], tag: str) -> list[dict[str, Any]]:
    """List the user's messages of a conversation as items: of the stored responses that it continues, and its own."""
    items = [item for record in chain for item in open_record(record)["input"]]
    items += [{"role": "user", "content": given}] if isinstance(given, str) else given
    return complete_items((item for item in items if isinstance(item, Mapping) and item.get("role") == "user"), tag)
