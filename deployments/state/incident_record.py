"""The record of an incident: one flat, bounded JSON object of one shape; None where a field doesn't apply.

Texts are left out, since they are full of the conversation. What stays are closed sets: enum values, numbers, digests,
and names that the client declared in its tools; the rest of a path becomes `*`, and of an undeclared name only the
length is shown. Sizes are bytes of JSON; a record is cut, with a mark, and never refused.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import orjson

from reliability.surrogates import join_surrogates
from reliability.tools import ToolBox

_EVIDENCE_BYTES_MAX = 4096
_TEXT_BYTES_MAX = 1024
_ITEMS_MAX = 16
_DEPTH_MAX = 4
_INTEGER_MAX = 2**63 - 1
_PATH_BYTES_MAX = 200
_PATH_PARTS_MAX = 12
_NAME_BYTES_MAX = 128
_INDEX_CHARS_MAX = 4  # longer digits may be a number that the model wrote as a key
_SCHEMA_NODES_MAX = 20_000
_MARK = "…"
_OWN_PARTS = frozenset({"arguments", "name", "tool_choice", "parallel_tool_calls"})  # what this server writes itself


def cut(text: str, bytes_max: int) -> str:
    """Return the beginning of `text` that fits into so many bytes of JSON, with a mark where something is missing."""
    start = join_surrogates(text[:bytes_max])
    if len(text) <= bytes_max and _count_bytes(start) <= bytes_max:
        return start
    room = bytes_max - len(_MARK.encode())
    return start[: bisect_right(range(1, len(start) + 1), room, key=lambda n: _count_bytes(start[:n]))] + _MARK


def _count_bytes(text: str) -> int:
    return len(orjson.dumps(text)) - 2


def _to_plain_json(value: Any, depth: int = _DEPTH_MAX) -> Any:
    """Return `value` as bounded JSON: what JSON can't express becomes None, what is too long or too deep is cut."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return cut(str(value), _TEXT_BYTES_MAX)
    if isinstance(value, int):
        return int(value) if abs(value) <= _INTEGER_MAX else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth == 0:
        return None
    if isinstance(value, Mapping):
        items = list(value.items())[:_ITEMS_MAX]
        return {cut(str(key), _NAME_BYTES_MAX): _to_plain_json(item, depth - 1) for key, item in items}
    if isinstance(value, Sequence | frozenset | set) and not isinstance(value, bytes):
        return [_to_plain_json(item, depth - 1) for item in list(value)[:_ITEMS_MAX]]
    return None


def fit_evidence(evidence: Mapping[str, Any], bytes_max: int = _EVIDENCE_BYTES_MAX) -> dict[str, Any]:
    """Return `evidence` as bounded JSON. Entries that don't fit are left out, and `cut` is set."""
    out: dict[str, Any] = {}
    room = bytes_max - len(b'{"cut":true}')
    for name, value in evidence.items():
        if value is None:
            continue
        entry = {cut(name, _NAME_BYTES_MAX): _to_plain_json(value)}
        if (size := len(orjson.dumps(entry))) > room:
            out["cut"] = True
        else:
            room -= size
            out |= entry
    return out


@dataclass(frozen=True)
class Shown:
    """What may be shown of one request. With `keep_text` the texts too, cut."""

    toolbox: ToolBox
    keep_text: bool

    def text(self, text: str, bytes_max: int = _TEXT_BYTES_MAX) -> str | None:
        """Show a text that may quote the conversation; None where it may not be shown or is empty."""
        return cut(text, bytes_max) if self.keep_text and text else None

    def tool(self, name: str | None) -> str | None:
        """Show a tool's name where the client declared it, else its length."""
        if not name:
            return None
        if self.keep_text or name in self.toolbox.by_name:
            return cut(name, _NAME_BYTES_MAX)
        return f"undeclared ({len(name)} characters)"

    def path(self, path: str) -> str:
        """Show a JSON pointer; parts that neither this server nor the client's schemas wrote are `*`."""
        if self.keep_text:
            return cut(path, _PATH_BYTES_MAX)
        parts = path.split("/", _PATH_PARTS_MAX)
        return cut("/".join(part if self._may_show(part) else "*" for part in parts), _PATH_BYTES_MAX)

    def _may_show(self, part: str) -> bool:
        is_index = part.isascii() and part.isdigit() and len(part) <= _INDEX_CHARS_MAX
        return not part or is_index or part in _OWN_PARTS or part in self._declared

    @cached_property
    def _declared(self) -> frozenset[str]:
        """The names of parameters in the schemas of the tools, escaped as in a path."""
        room = iter(range(_SCHEMA_NODES_MAX))
        names = {name for tool in self.toolbox.tools for name in _find_parameters(tool.parameters, room)}
        return frozenset(name.replace("~", "~0").replace("/", "~1") for name in names)


def _find_parameters(schema: Any, room: Iterator[int]) -> Iterator[str]:
    nodes = [schema]
    while nodes and next(room, None) is not None:
        node = nodes.pop()
        if isinstance(node, Mapping):
            for key in ("properties", "required"):
                found = node.get(key)
                if isinstance(found, Mapping | list | tuple):
                    yield from (name for name in found if isinstance(name, str))
            nodes += node.values()
        elif isinstance(node, list | tuple):
            nodes += node


_RECORD_BYTES_MAX = 8192
_ID_BYTES_MAX = 512
_WORD_BYTES_MAX = 128
_FACTS_BYTES_MAX = 2048
_FACTS: dict[str, Any] = dict.fromkeys(
    ("model", "generation", "prompt_tokens", "completion_tokens", "ttft_ms", "elapsed_ms", "attempt")
)


class IncidentKind(StrEnum):
    """What happened. The value stands in records and in the filters of the API."""

    LOOP = "loop"
    FLAW = "flaw"
    REPAIR = "repair"
    ESCALATION = "escalation"  # and fallback: `evidence.how` says which
    FAULT = "fault"
    BUDGET = "budget"
    USAGE = "usage"  # a tier reported a cost that an answer can't have had; an estimate is booked
    BREAKER = "breaker"
    MEMORY = "memory"
    SCALING = "scaling"  # a replica that holds memory has come or gone
    OPERATOR = "operator"
    GRANT_EXPIRED = "grant_expired"
    JOURNAL = "journal"  # it could not be read and was put aside: budgets and incidents begin empty


def record(
    kind: IncidentKind,
    *,
    at_s: float,
    reason: str,
    request_id: str | None = None,
    session: str | None = None,
    key: str | None = None,
    tier: str | None = None,
    evidence: Mapping[str, Any] | None = None,
    **facts: Any,
) -> dict[str, Any]:
    """Build one record, bounded and JSON-ready. `at_s`: seconds since the epoch. `key`: the name of the API key, never
    the key. `facts`: more of the fields of a record (`_FACTS`). Raises TypeError for a fact that no record has."""
    if unknown := facts.keys() - _FACTS.keys():
        raise TypeError(f"a record has no {', '.join(sorted(unknown))}")
    head = {
        "at": _to_plain_json(float(at_s)),
        "kind": kind.value,
        "request_id": shorten(request_id, _ID_BYTES_MAX),
        "session": shorten(session, _ID_BYTES_MAX),
        "key": shorten(key),
        "tier": shorten(tier),
    }
    known = {name: value for name, value in fit_evidence(facts, _FACTS_BYTES_MAX).items() if name in _FACTS}
    return head | _FACTS | known | {"reason": cut(reason, _WORD_BYTES_MAX), "evidence": fit_evidence(evidence or {})}


def shorten(text: str | None, bytes_max: int = _WORD_BYTES_MAX) -> str | None:
    """Cut a text to its bound; None stays None."""
    return None if text is None else cut(text, bytes_max)
