"""The body of an answer, from its bytes to the events of one attempt, the last one included. No I/O.

A stream may end without `[DONE]` if a finish reason was seen, and without a finish reason at `[DONE]`, if its calls are
complete; one that ends with neither was cut. A chunk that can't be read is skipped, `SKIPPED_MAX` times, with a note.
What may have held a part of the answer leaves it `damaged`: no call in it may be trusted, and where the answer has to
be data (`strict`) it is none. Invariant: no piece of an answer is missing without a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson

from deployments.tiers.hosted.body_reader import CUT, BodyReader, has_end
from deployments.tiers.hosted.chat_chunks import ChunkReader
from deployments.tiers.hosted.sse_reader import UnreadableStream
from deployments.tiers.hosted.thought_bound import ThoughtBound
from deployments.tiers.hosted.upstream_errors import UpstreamComplaint, read_written
from deployments.work.json_text import has_more_values, read_json
from reliability.types import Event, Failed, Fault, Finish, FinishReason

_BODY_BYTES_MAX = 16 * 1024 * 1024
SKIPPED_MAX = 16  # chunks of one answer
_VALUES_MAX = 400_000  # of one chunk: the probabilities of a long answer, twenty at each place


class ChatReader(BodyReader):
    """Reads the body of one answer; with `logprobs`, the probabilities of its tokens too. `strict`: the answer is worth
    nothing if a piece of it is missing. `bound`: ends the answer where its thought has to; one that came whole has
    ended. `left_out`: fields that the upstream refuses. `names`: those of the declared tools."""

    def __init__(
        self,
        tier: str,
        clean: Callable[[str], str],
        write_asked: Callable[[], bytes] = bytes,
        *,
        logprobs: bool = False,
        strict: bool = False,
        bound: ThoughtBound | None = None,
        left_out: Collection[str] = (),
        names: Collection[str] = (),
    ) -> None:
        super().__init__(tier, clean, write_asked, _parse_chunk, bytes_max=_BODY_BYTES_MAX, streams=True)
        self._strict, self._bound, self._left_out = strict, bound, left_out
        self._skipped = 0
        self._torn: UnreadableStream | None = None  # the last chunk, where it couldn't be read
        self._chunks = ChunkReader(logprobs=logprobs, names=names)

    def _read_data(self, data: str, events: list[Event]) -> None:
        try:
            chunk = self._parse(data)
        except UnreadableStream as problem:
            self._skip(data, problem)
            return
        self._torn = None
        before = len(events)
        self._read_chunk(chunk, events)
        if self._bound is None or self.finishing or has_end(events):
            return
        why, model = self._bound.note(events[before:]), self._chunks.model
        if why is not None:
            events.append(Finish(reason=FinishReason.STOP, usage=self.usage, model=model, thought=why))

    def _skip(self, data: str, problem: UnreadableStream) -> None:
        if data in ("null", "[]", '""'):  # it keeps the connection open, through minutes of thought
            self._chunks.strange += 1
            return
        self._skipped += 1
        self._torn = problem
        if not self.finishing and ("{" in data or "}" in data):
            self._chunks.damaged = True
        if self._skipped > SKIPPED_MAX or (self._strict and self._chunks.damaged):
            raise problem

    def _read_chunk(self, chunk: Mapping[str, Any], events: list[Event]) -> None:
        chunks = self._chunks
        events += chunks.read(chunk)
        self.usage, self.written_tokens = chunks.usage, chunks.written
        if chunks.complaint is not None:  # a finish reason beside it is its own
            self._refuse(chunks.complaint, events)
        else:
            self.finishing = chunks.finish is not None

    def _refuse(self, complaint: UpstreamComplaint, events: list[Event]) -> None:
        clean, begun = complaint.redact(self._clean), bool(self.written_tokens)
        known = self.finishing or self._chunks.has_call  # what it is, or that it has calls whose end isn't
        answer = [] if known else read_written(clean, self.usage, begun=begun, tools=self._chunks.named)
        if answer:
            events += [*self._chunks.end(), *answer]
        else:
            super()._refuse(complaint, events)

    def _read_rest(self, events: list[Event]) -> None:
        before = self._skipped, self._torn, self._chunks.damaged
        try:
            super()._read_rest(events)
        except UnreadableStream as problem:
            if problem is not self._torn:
                raise
        if self._skipped > before[0]:  # a last line that was torn by the cut that is reported below
            self._skipped, self._torn, self._chunks.damaged = before

    def _end_frames(self, events: list[Event], *, done: bool = False) -> None:
        if not done:
            self._finish(events, CUT, Fault.CRASHED)
            return
        if self._torn is None and self._chunks.ends_well:
            self._chunks.finish = self._chunks.finish or FinishReason.STOP
        self._finish(events, "ended its answer without a finish reason", Fault.PROTOCOL)

    def _read_json(self, value: dict[str, Any], events: list[Event]) -> None:
        self._read_chunk(value, events)
        if events and isinstance(events[-1], Failed):
            return
        if not value.get("choices"):
            raise UnreadableStream("sent an answer without choices")
        # The body is complete, so a missing finish reason hides no cut here.
        self._chunks.finish = self._chunks.finish or FinishReason.STOP
        self._finish(events, "", Fault.PROTOCOL)

    def _finish(self, events: list[Event], words: str, fault: Fault) -> None:
        chunks = self._chunks
        events += chunks.end()
        if chunks.damaged and (self._strict or not chunks.written):
            fault, words = Fault.PROTOCOL, "sent an answer that can't be read"
        elif chunks.finish is not None:
            end = Finish(reason=chunks.finish, usage=chunks.usage, model=chunks.model, stop=chunks.stop)
            events.append(replace(end, notes=self._build_notes(), damaged=chunks.damaged))
            return
        elif self._torn is not None:
            fault, words = Fault.PROTOCOL, str(self._torn)
        events.append(self._build_failed(fault, words))

    def _build_notes(self) -> tuple[str, ...]:
        chunks, notes = self._chunks, list[str]()
        if self._left_out:
            notes.append(f"its upstream takes no {', '.join(self._left_out)}: left out")
        if self._skipped or chunks.damaged:
            lost = "; a piece of the answer may be missing" if chunks.damaged else ""
            notes.append(f"left out what can't be read ({max(1, self._skipped)} chunks){lost}")
        if chunks.unknown_reason:
            notes.append(f"finish reason {chunks.unknown_reason!r} is unknown and counts as stop")
        if chunks.strange:
            notes.append(f"{chunks.strange} chunks held nothing of an answer")
        return tuple(f"tier {self._tier}: {note}" for note in notes)


def _parse_chunk(data: str | bytes) -> dict[str, Any]:
    if len(data) > _VALUES_MAX and has_more_values(data if isinstance(data, bytes) else data.encode(), _VALUES_MAX):
        raise UnreadableStream(f"sent a chunk of more than {_VALUES_MAX} values")
    value = _unwrap(_load(data))
    if not _has_object(value, data):
        return value
    try:
        return _unwrap(json.loads(data, object_pairs_hook=_refuse_twice))
    except UnreadableStream:
        raise
    except (ValueError, RecursionError):
        raise UnreadableStream("sent a call whose arguments can't be read") from None


def _load(data: str | bytes) -> Any:
    with suppress(orjson.JSONDecodeError):  # half a character, or NaN
        return orjson.loads(data)
    try:
        raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
        return read_json(raw, nan=True, halves=True)
    except (ValueError, RecursionError):
        raise UnreadableStream("sent a chunk that is not JSON") from None


def _unwrap(value: Any) -> dict[str, Any]:
    if isinstance(value, list) and value:
        value = value[0]  # some gateways wrap an error in a list
    if not isinstance(value, dict):
        raise UnreadableStream("sent a chunk that is not an object")
    return value


def _has_object(chunk: Mapping[str, Any], data: str | bytes) -> bool:
    """Return whether a call's arguments are no text, or stand there twice: only then each key must be looked at."""
    if isinstance(data, str) and '"arguments"' not in data and "\\" not in data:  # nearly always: no call
        return False
    functions: list[Any] = []
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        told = (choice.get("delta") or choice.get("message")) if isinstance(choice, dict) else None
        if isinstance(told, dict):
            calls = told.get("tool_calls")
            if calls and isinstance(calls, list):
                functions += [call.get("function") or call for call in calls if isinstance(call, dict)]
            if told.get("function_call"):
                functions.append(told["function_call"])
    given = [one.get("arguments") for one in functions if isinstance(one, dict)]
    if not functions:
        return False
    if any(value is not None and not isinstance(value, str) for value in given):
        return True
    spelled = data.count('"arguments"') if isinstance(data, str) else data.count(b'"arguments"')
    return spelled > len(given)


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object; refuse one with a key twice and two values: the last would count without a word."""
    found = dict(pairs)
    if len(found) < len(pairs) and any(json.dumps(found[key]) != json.dumps(value) for key, value in pairs):
        raise UnreadableStream("sent a call with one key twice")
    return found
