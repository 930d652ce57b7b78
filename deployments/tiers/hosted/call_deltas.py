"""Tool-call pieces as upstreams send them, in the one form that `CallDelta` has. Upstreams disagree on how a piece says
to which call it belongs; the rules, in order:

- With an `index`, the index says it. A new `id` together with a name under a known index is a new call all
  the same (some upstreams number all parallel calls 0).
- Without an index, a known `id` says it, and a new one begins a call. Two pieces of one list are never the same call.
- An unknown `index` with neither an id nor a name goes on with the last call, which has its name.
- With neither, a name begins a call, and anything else continues the last one.

Ours are numbered from 0 without gaps. `id` (made up where it is missing) and `name` leave with the first piece of a
call and never again; what comes before the name is held.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reliability.surrogates import Halves, join_surrogates
from reliability.types import CallDelta

CALLS_MAX = 1024
INDEX_DIGITS_MAX = 9
ID_CHARS_MAX = 256  # a longer one is taken for none, and one is made up


class TooManyCalls(ValueError):
    """An answer with more calls than any agent could mean."""


@dataclass(slots=True)
class _Call:
    index: int
    upstream_id: str = ""
    name: str = ""
    named: bool = False
    held: str = ""
    halves: Halves = field(default_factory=Halves)
    parts: list[str] = field(default_factory=list)


class CallDeltas:
    """The calls of one answer, piece by piece."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def read(self, pieces: Any) -> list[CallDelta]:
        """Return the deltas of one `tool_calls` list."""
        touched: list[_Call] = []
        out: list[CallDelta] = []
        for piece in pieces if isinstance(pieces, list) else []:
            if not isinstance(piece, dict):
                continue
            inner = piece.get("function")
            function = inner if isinstance(inner, dict) else piece
            name = _read_text(function.get("name"))
            call = self._find_call(piece, name, touched)
            touched.append(call)
            arguments = call.halves.take(_read_arguments(function.get("arguments")))
            call.parts.append(arguments)
            delta = _build_delta(call, name, arguments)
            if delta is not None:
                out.append(delta)
        return out

    @property
    def count(self) -> int:
        """How many calls have begun."""
        return len(self._calls)

    @property
    def complete(self) -> bool:
        """Whether each call's arguments are complete JSON, or none at all."""
        return all(map(_is_complete, ("".join(call.parts) for call in self._calls)))

    def end(self) -> list[CallDelta]:
        """Return what was held. A call whose name never came leaves too: the check of complete calls refuses it."""
        ends = [_build_delta(call, "", call.halves.end(), last=True) for call in self._calls]
        return [delta for delta in ends if delta is not None]

    def _find_call(self, piece: Mapping[str, Any], name: str, touched: list[_Call]) -> _Call:
        index, upstream_id = _read_index(piece.get("index")), _read_text(piece.get("id"))
        if len(upstream_id) > ID_CHARS_MAX:
            upstream_id = ""
        if index is not None:
            call = self._by_index.get(index)
            if call is None and not name and not upstream_id and self._calls and self._calls[-1].named:
                call = self._by_index[index] = self._calls[-1]
            if call is None or _begins_another(call, upstream_id, name):
                call = self._by_index[index] = self._add_call()
        else:
            call = self._find_without_index(upstream_id, name, touched)
        call.upstream_id = call.upstream_id or upstream_id
        call.name = call.name or name
        return call

    def _find_without_index(self, upstream_id: str, name: str, touched: list[_Call]) -> _Call:
        if upstream_id:
            known = [call for call in self._calls if call.upstream_id == upstream_id]
            return known[-1] if known and known[-1] not in touched else self._add_call()
        return self._add_call() if name or not self._calls else self._calls[-1]

    def _add_call(self) -> _Call:
        if len(self._calls) >= CALLS_MAX:
            raise TooManyCalls(f"more than {CALLS_MAX} tool calls")
        self._calls.append(_Call(len(self._calls)))
        return self._calls[-1]


def _begins_another(call: _Call, upstream_id: str, name: str) -> bool:
    """Return whether a piece under a call's index is another call's: it has a name, and another id, or no id, another
    name and nothing before it that it would complete."""
    if not name or (upstream_id and upstream_id == call.upstream_id):
        return False
    if upstream_id and call.upstream_id:
        return True
    return bool(call.name) and name != call.name and _is_complete("".join(call.parts))


def _build_delta(call: _Call, name: str, arguments: str, *, last: bool = False) -> CallDelta | None:
    if call.named:
        return CallDelta(index=call.index, arguments=arguments) if arguments else None
    call.held += arguments
    if not name and not last:
        return None
    call.named = True
    call_id = call.upstream_id or f"call_{uuid.uuid4().hex[:24]}"
    return CallDelta(index=call.index, id=call_id, name=name, arguments=call.held)


def _read_index(value: Any) -> int | None:
    """Read the number of a call; some upstreams write it as a text or with a point."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= INDEX_DIGITS_MAX:
        return int(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1
    return int(value) if is_number else None


def _read_arguments(value: Any) -> str:
    """Read the arguments' JSON text; an upstream that sends the object itself means its text."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _is_complete(arguments: str) -> bool:
    try:
        return not arguments.strip() or json.loads(arguments) is not None
    except (ValueError, RecursionError):
        return False


def _read_text(value: Any) -> str:
    return join_surrogates(value) if isinstance(value, str) else ""
