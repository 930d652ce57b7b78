"""Compaction: a conversation becomes a summary, which its tier writes and which stands for it from then on.

A client asks for it by `POST /v1/responses/compact`, or by a last item of type `compaction_trigger`; both are answered
with a `compaction` item, whose `encrypted_content` is the sealed summary; `response_items` reads it back. The summary
is asked for with the tools declared and forbidden, as some hosted models take no calls in a history without them.
Invariant: a user's messages leave `compact` as they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deployments.api.openai_responses.stored_record import complete_items, open_record
from deployments.errors import refuse
from reliability.context_edits import SUMMARY_ORDER

TRIGGER = "compaction_trigger"


def split_trigger(given: str | Sequence[Any]) -> tuple[str | Sequence[Any], bool]:
    """Return the items without the trigger at their end, and whether there was one. Raises `ApiError`: it stands
    elsewhere."""
    if isinstance(given, str):
        return given, False
    for place, item in enumerate(given):
        if isinstance(item, Mapping) and item.get("type") == TRIGGER:
            if place < len(given) - 1:
                raise refuse(f"input.{place}.type", f"{TRIGGER} must be the last item")
            return given[:-1], True
    return given, False


def order_summary(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a chat completion that writes the summary of this one's conversation."""
    without = ("response_format", "logprobs", "top_logprobs", "verbosity", "parallel_tool_calls")
    left = {name: value for name, value in chat.items() if name not in without}
    choice = {"tool_choice": "none"} if chat.get("tools") else {}
    return left | {"messages": [*chat["messages"], {"role": "user", "content": SUMMARY_ORDER}]} | choice


def list_user_items(chain: Iterable[bytes], given: str | Sequence[Any], tag: str) -> list[dict[str, Any]]:
    """List the user's messages of a conversation as items: of the stored responses that it goes on from, and its
    own."""
    items = [item for record in chain for item in open_record(record)["input"]]
    items += [{"role": "user", "content": given}] if isinstance(given, str) else given
    return complete_items((item for item in items if item.get("role") == "user"), tag)
