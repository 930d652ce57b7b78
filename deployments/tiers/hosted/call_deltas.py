"""Tool-call pieces as upstreams send them, in the one form that `CallDelta` has. Upstreams disagree on how a piece says
to which call it belongs; the rules, in order:

- With a known `index`, the index says it. A new `id` together with a name under it is a new call all the same (some
  upstreams number all parallel calls 0), and so are a name and complete arguments behind complete ones.
- A new `id` with the same name, in the middle of the arguments, says nothing: vLLM 0.4 to 0.8 made one up for each
  piece of a call that `tool_choice` names.
- A name that goes on with the one before it, so that both are a declared one or its beginning, is the rest of it.
- A known `id` says it, with the same name and no other index.
- A call that has no index yet goes on, at the place that a new index says, or as the last one: with its name again, or
  none, and while its arguments aren't complete. So does the last call, where neither an index nor an id says more.
- An unknown `index` with neither an id nor a name goes on with the last call, which has its name.
- Anything else begins a call. Complete arguments that come again with the same id and name are told twice.

Two pieces of one list without an index are two calls, unless the first one's arguments break off. Ours are numbered
from 0 without gaps. `id` and `name` leave with the first piece of a call; what comes before the name is held. Qianfan
and others send the arguments so far in each piece: what is told again doesn't leave.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from deployments.tiers.hosted.sse_reader import UnreadableStream
from reliability.answer.call_scan import Shape, read_shape
from reliability.surrogates import Halves, join_surrogates
from reliability.types import CallDelta

_CALLS_MAX = 1024  # more than any agent could mean
_INDEX_DIGITS_MAX = 9
_ID_CHARS_MAX = 256  # a longer one is taken for none, and one is made up
_SCALAR_CHARS_MAX = 4_300  # of arguments that are no object: a longer number is none
_OBJECT = re.compile(r'\s*\{\s*["}]')


@dataclass(slots=True, eq=False)
class _Call:
    index: int
    number: int | None = None  # as the upstream counts
    upstream_id: str = ""
    name: str = ""
    named: bool = False
    held: str = ""
    halves: Halves = field(default_factory=Halves)
    parts: list[str] = field(default_factory=list)
    chars: int = 0  # of its parts
    retells: bool = False  # each piece brings what came before
    begun: bool = False  # they hold more than white space
    seen: int = 0  # so many of them were looked at
    shape: Shape = field(default_factory=Shape)  # what those leave open
    whole: bool | None = None  # whether what has ended is JSON

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def may_end(self) -> bool:
        """Whether its arguments may be complete, by their ends: most pieces needn't be put together for it."""
        if not self.parts or self.parts[0].lstrip()[:1] not in ("{", "["):
            return True
        return (self.parts[-1].rstrip() or self.text.rstrip()).endswith(("}", "]"))

    @property
    def breaks_off(self) -> bool:
        """Whether its arguments have begun and aren't complete. Parts are read once, all where nothing is open."""
        new, self.seen = "".join(self.parts[self.seen :]), len(self.parts)
        if self.whole is not None:
            self.whole = self.whole and not new.strip()
            return not self.whole
        self.shape, _ = read_shape(self.shape, new)
        if self.shape.quoted or self.shape.depth or not self.begun:
            return self.begun
        text, whole = self.text.strip(), False
        with suppress(ValueError, RecursionError):
            whole = json.loads(text) is not None
        self.whole = whole if text[0] in '{["' or len(text) > _SCALAR_CHARS_MAX else None
        return not whole

    def skip_retold(self, given: str) -> str:
        """Return what is new in a piece. All that came before, said again, is no JSON but where a value begins."""
        if len(given) < self.chars + (not self.retells) or not self.chars or not _OBJECT.match(given):
            return given
        text = self.text
        self.retells |= given.startswith(text) and not text.rstrip().endswith((":", "[", ","))
        return given.removeprefix(text) if self.retells else given


class CallDeltas:
    """The calls of one answer, piece by piece. `names`: those of the declared tools."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = names
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def read(self, pieces: Any) -> list[CallDelta]:
        touched: set[_Call] = set()
        out: list[CallDelta | None] = []
        for piece in pieces if isinstance(pieces, list) else []:
            if not isinstance(piece, dict):
                continue
            inner = piece.get("function")
            function = inner if isinstance(inner, dict) else piece
            name, given = _read_text(function.get("name")), _read_arguments(function.get("arguments"))
            if self._is_told_again(piece.get("id"), name, given):
                continue
            begun = len(self._calls)
            call = self._find_call(piece, name, given, touched)
            if len(self._calls) > begun:  # no name before it gets longer any more
                held = [one for one in self._calls[:begun] if one.name and not one.named]
                out += [self._build_delta(one, "", last=True) for one in held]
            touched.add(call)
            arguments = call.halves.take(call.skip_retold(given))
            call.parts += [arguments] * bool(arguments)
            call.chars += len(arguments)
            call.begun = call.begun or bool(arguments.strip())
            out.append(self._build_delta(call, arguments))
        return list(filter(None, out))

    @property
    def count(self) -> int:
        return len(self._calls)

    @property
    def complete(self) -> bool:
        """Whether each call's arguments are complete JSON, or none at all."""
        return not any(call.breaks_off for call in self._calls)

    def end(self) -> list[CallDelta]:
        """Return what was held. A call whose name never came leaves too: the check of complete calls refuses it."""
        ends = (self._build_delta(call, call.halves.end(), last=True) for call in self._calls)
        return list(filter(None, ends))

    def _find_call(self, piece: Mapping[str, Any], name: str, given: str, touched: set[_Call]) -> _Call:
        index, upstream_id = _read_index(piece.get("index")), _read_text(piece.get("id"))
        if len(upstream_id) > _ID_CHARS_MAX:
            upstream_id = ""
        call = None if index is None else self._by_index.get(index)
        if call is not None and self._is_rest_of_name(call, upstream_id, name):
            call.name += name
        elif call is None or _begins_another(call, upstream_id, name, given):
            call = self._find_begun(index, upstream_id, name, given, touched) or self._add_call()
        if index is not None:
            self._by_index[index] = call
            call.number = index if call.number is None else call.number
        call.upstream_id = call.upstream_id or upstream_id
        call.name = call.name or name
        return call

    def _find_begun(self, at: int | None, upstream_id: str, name: str, given: str, touched: set[_Call]) -> _Call | None:
        for call in reversed(self._calls) if upstream_id else ():
            same = call.upstream_id == upstream_id and (not name or call.name in ("", name))
            if same and (at is None or call.number in (None, at)):
                return None if call in touched and not call.breaks_off else call
        last = self._calls[-1:]
        if at is None:
            unnumbered = (call for call in reversed(self._calls) if call.number is None)
            begun = [*islice(unnumbered, 1), *last]
        else:
            begun = [call for call in self._calls[at : at + 1] if call.number is None]
        for call in begun:
            if _goes_on(call, upstream_id, name, given, again=call in touched):
                return call
        if upstream_id or name or not last:
            return None
        return last[0] if at is None or last[0].named else None

    def _is_told_again(self, upstream_id: Any, name: str, arguments: str) -> bool:
        """Return whether this is a call that came before, complete, with all that it is known by."""
        if not (upstream_id and name and arguments.lstrip().startswith("{")):
            return False
        known = (upstream_id, name, len(arguments))
        same = (call for call in self._calls if (call.upstream_id, call.name, call.chars) == known)
        return any(call.text == arguments and not call.breaks_off for call in same)

    def _is_rest_of_name(self, call: _Call, upstream_id: str, name: str) -> bool:
        known = bool(call.name and name) and name not in self._names and upstream_id in ("", call.upstream_id)
        return known and any(one.startswith(call.name + name) for one in self._names)

    def _may_get_longer(self, call: _Call) -> bool:
        settled = call.name in self._names and call.chars > 0
        return not settled and any(one.startswith(call.name) and one != call.name for one in self._names)

    def _build_delta(self, call: _Call, arguments: str, *, last: bool = False) -> CallDelta | None:
        if call.named:
            return CallDelta(index=call.index, arguments=arguments) if arguments else None
        call.held += arguments
        if not last and (not call.name or self._may_get_longer(call)):
            return None
        call.named = True
        call_id = call.upstream_id or f"call_{uuid.uuid4().hex[:24]}"
        return CallDelta(index=call.index, id=call_id, name=call.name, arguments=call.held)

    def _add_call(self) -> _Call:
        if len(self._calls) >= _CALLS_MAX:
            raise UnreadableStream(f"sent more than {_CALLS_MAX} tool calls")
        self._calls.append(_Call(len(self._calls)))
        return self._calls[-1]


def _begins_another(call: _Call, upstream_id: str, name: str, given: str) -> bool:
    """Return whether a piece under a call's index is another call's: it has a name, and another id, or no id, another
    name or other arguments, and nothing before it that it would complete."""
    if not name or (upstream_id and upstream_id == call.upstream_id):
        return False
    if upstream_id and call.upstream_id:
        return not _is_rest(call, name, given)
    if not call.name or call.breaks_off:
        return False
    # Some send `{}` before the arguments, or all of them twice.
    return name != call.name or (given.lstrip().startswith("{") and call.text.strip() not in ("", "{}", given.strip()))


def _is_rest(call: _Call, name: str, given: str) -> bool:
    """Return whether a piece with another id is of the same call: it has its name, and comes in the middle of its
    arguments."""
    begins = call.may_end and (not given or given.lstrip()[:1] in ("{", "["))  # what only looks broken
    return name == call.name and call.breaks_off and not begins


def _goes_on(call: _Call, upstream_id: str, name: str, given: str, *, again: bool) -> bool:
    """Return whether a piece can be of a call that is known by neither its index nor its id. `again`: another piece of
    the same list was."""
    if upstream_id and call.upstream_id and (again or not _is_rest(call, name, given)):
        return False
    if name and call.name and name != call.name:
        return False
    return call.breaks_off if call.begun else not again


def _read_index(value: Any) -> int | None:
    """Read the number of a call; some upstreams write it as a text or with a point."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= _INDEX_DIGITS_MAX:
        return int(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1
    return int(value) if is_number else None


def _read_arguments(value: Any) -> str:
    """Read the arguments' JSON text; an upstream that sends the object itself means its text."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _read_text(value: Any) -> str:
    return join_surrogates(value) if isinstance(value, str) else ""
