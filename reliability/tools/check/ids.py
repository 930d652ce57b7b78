"""Ids of calls: unique in the whole conversation, since agents key a tool's result by them.

A model's own id is kept while nobody used it before. Where one is missing or taken, the next unused one of
the caller's source is given: a pure function from a counter, so that the same request gets the same ids
again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

__all__ = ["assign", "id_source", "ids_in"]

IDS_TRIED_MAX = 1_000
_ID = re.compile(r"[\x21-\x7e]{1,128}")


def id_source(seed: str) -> Callable[[int], str]:
    """Build ids that look like OpenAI's, from a seed such as the request's id."""
    return lambda n: "call_" + hashlib.sha256(f"{seed}/{n}".encode("utf-8", "surrogatepass")).hexdigest()[:24]


def ids_in(messages: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Collect all ids of calls that a conversation holds already."""
    found: set[str] = set()
    for message in messages:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, Mapping) and isinstance(call.get("id"), str):
                found.add(call["id"])
        if isinstance(message.get("tool_call_id"), str):
            found.add(message["tool_call_id"])
    return frozenset(found)


def assign(given: Sequence[str | None], used: Collection[str], new_id: Callable[[int], str]) -> list[str]:
    """Assign one id to each call: its own where that is fit and free, else a new one."""
    taken = {*used}
    reserved = {id for id in given if id is not None}
    found: list[str] = []
    n = 0
    for own in given:
        id = own
        if id is None or id in taken or not _ID.fullmatch(id):
            id, n = _find_unused(taken | reserved, new_id, n)
        taken.add(id)
        found.append(id)
    return found


def _find_unused(taken: Collection[str], new_id: Callable[[int], str], n: int) -> tuple[str, int]:
    """Find the next unused id of the source. A source that repeats itself is helped out with the counter."""
    for tried in range(n, n + IDS_TRIED_MAX):
        if (id := new_id(tried)) not in taken:
            return id, tried + 1
    stem = new_id(n)
    while (id := f"{stem}_{n}") in taken:
        n += 1
    return id, n + 1
