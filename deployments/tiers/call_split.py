"""Takes the tool calls that a model marks in its text out of it, however the text is cut into pieces.

From a marker on, text is held until the call is closed. A complete, parsable call becomes a
`CallDelta` with an id of its own; anything else leaves as text, unchanged, markers included:
nothing is lost, nothing invented. Under a grammar, where a model can write nothing but calls, a call
that was there already ends the answer (`distinct`): it would say nothing new. Repairing calls is the
business of the tool checks that see that text, not of this module.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deployments.tiers.cuts import find_partial_marker
from reliability.types import CallDelta, Event, Text

__all__ = ["CallFormat", "CallSplit", "strict_json_call"]

# (name, JSON text of the arguments) of each call in the text between two markers, or None where it isn't
# complete and sound.
ParseCalls = Callable[[str], list[tuple[str, str]] | None]


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a model marks its tool calls. An empty `end` means: up to the end of the answer."""

    start: str
    end: str
    parse: ParseCalls


class CallSplit:
    """Takes complete tool calls out of the text. With `calls_max`, what follows the last allowed
    one is not looked at; with `distinct`, neither is one that was there already, nor what follows it."""

    def __init__(self, form: CallFormat | None, *, calls_max: int | None = None, distinct: bool = False) -> None:
        self._form = form
        self._calls_max = calls_max
        self._seen: set[tuple[str, str]] | None = set() if distinct else None
        self.repeated = False
        self._held = ""
        self._inside = False
        self.calls = 0

    @property
    def full(self) -> bool:
        """No further call may follow, so there is nothing left to wait for."""
        return self.repeated or (self._calls_max is not None and self.calls >= self._calls_max)

    def feed(self, text: str) -> list[Event]:
        """Return the text and the calls that may leave now."""
        if self._form is None:
            return [Text(text)] if text else []
        self._held += text
        out: list[Event] = []
        while not self.full and (step := self._step(self._form)) is not None:
            out += step
        return out

    def finish(self, *, truncated: bool) -> list[Event]:
        """Return the rest.

        An open call is text, unless its format ends with the answer and that wasn't cut.
        """
        held, self._held = ("", "") if self.full else (self._held, "")
        if self._form is not None and self._inside:
            if not self._form.end and not truncated:
                return self._read_block(self._form, held, "")
            held = self._form.start + held
        return [Text(held)] if held else []

    def _step(self, form: CallFormat) -> list[Event] | None:
        """Move across one border in the held text; None where there is none."""
        if self._inside:
            body, end, rest = self._held.partition(form.end) if form.end else (self._held, "", "")
            if not end:
                return None
            self._inside, self._held = False, rest
            return self._read_block(form, body, end)
        at = self._held.find(form.start)
        keep = find_partial_marker(self._held, form.start) if at == -1 else at
        text, rest = self._held[:keep], self._held[keep:]
        self._inside = at != -1
        self._held = rest[len(form.start) :] if self._inside else rest
        if not text and not self._inside:
            return None
        return [Text(text)] if text else []

    def _read_block(self, form: CallFormat, body: str, end: str) -> list[Event]:
        found = form.parse(body)
        if not found:
            return [Text(form.start + body + end)]
        if self._seen is not None and self._note_repeat(found, self._seen):
            return []
        first = self.calls
        self.calls += len(found)  # more than allowed in one block is for the gate to judge: none is dropped here
        return [
            CallDelta(index=first + i, id=f"call_{secrets.token_hex(12)}", name=name, arguments=arguments)
            for i, (name, arguments) in enumerate(found)
        ]

    def _note_repeat(self, found: list[tuple[str, str]], seen: set[tuple[str, str]]) -> bool:
        """Note the calls; tell whether all of them were there already."""
        new = {(name, _normalise(arguments)) for name, arguments in found}
        self.repeated = new <= seen
        seen |= new
        return self.repeated


def _normalise(arguments: str) -> str:
    """Write arguments so that equal ones are equal texts."""
    return json.dumps(json.loads(arguments), sort_keys=True)


def strict_json_call(body: str) -> list[tuple[str, str]] | None:
    """Read `{"name": ..., "arguments": {...}}`, nothing else. The arguments keep the model's own spelling."""
    try:
        pairs = json.JSONDecoder(object_pairs_hook=_Pairs, parse_constant=_refuse).decode(body.strip())
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, _Pairs) or sorted(key for key, _ in pairs) != ["arguments", "name"]:
        return None
    call: Mapping[str, Any] = dict(pairs)
    if not isinstance(call["name"], str) or not call["name"] or not isinstance(call["arguments"], _Pairs):
        return None
    return [(call["name"], _find_spelling(body, "arguments"))]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys as they came, twice where they came twice."""


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _find_spelling(body: str, wanted: str) -> str:
    """Return the text of one member of a flat-parsed object.

    Numbers keep their digits, strings their escapes.
    """
    decoder = json.JSONDecoder()
    at = body.index("{") + 1
    while True:
        key, at = decoder.raw_decode(body, _skip(body, at, " \t\r\n,"))
        start = _skip(body, at, " \t\r\n:")
        _, at = decoder.raw_decode(body, start)
        if key == wanted:
            return body[start:at]


def _skip(text: str, at: int, skipped: str) -> int:
    while text[at] in skipped:
        at += 1
    return at
