"""The body of an answer, from its bytes to the events of one attempt, the last one included. No I/O.

The first character says the form, since content types lie: `{` begins one JSON object, `<` a web page, anything else
is server-sent events. A stream may end without `[DONE]` if a finish reason was seen, and without a finish reason at
`[DONE]`, if its calls are complete; one that ends with neither was cut. A chunk that can't be read is skipped,
`SKIPPED_MAX` times, with a note. What may have held a part of the answer leaves it `damaged`: no call in it may be
trusted, and where the answer has to be data (`strict`) it is none. One whose frame has another shape (`choices` is no
list) ends the answer there, so that its text can be continued. Invariant: no piece of an answer is missing without a
word.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

import orjson

from deployments.tiers.hosted.chat_chunks import ChunkReader
from deployments.tiers.hosted.sse_reader import WEB_PAGE, Frame, SseReader, UnreadableStream
from deployments.tiers.hosted.thought_bound import ThoughtBound
from deployments.tiers.hosted.upstream_errors import (
    UpstreamComplaint,
    read_complaint,
    read_written,
    translate_complaint,
)
from deployments.tiers.stream_matchers import merge_events
from deployments.work.json_text import has_more_values, read_json
from reliability.types import ENDS, Counted, Event, Failed, Fault, Finish, FinishReason, Usage

BODY_BYTES_MAX = 16 * 1024 * 1024
SKIPPED_MAX = 16  # chunks of one answer
HEAD_BYTES_MAX = 64 * 1024  # white space before the first character
VALUES_MAX = 400_000  # of one chunk: the probabilities of a long answer, twenty at each place
_BOM = b"\xef\xbb\xbf"


class ChatReader:
    """Reads the body of one answer of one tier; with `logprobs`, the probabilities of its tokens too. `strict`: the
    answer is worth nothing if a piece of it is missing. `write_asked`: as of `translate_complaint`. `bound`: ends the
    answer where its thought has to; one that came whole has ended. `left_out`: fields that the upstream refuses.
    `names`: those of the declared tools."""

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
        self._write_asked, self._bound, self._left_out = write_asked, bound, left_out
        self.over = False
        self._strict = strict
        self._skipped = 0
        self._torn: UnreadableStream | None = None  # the last chunk, where it couldn't be read
        self._counted_tokens = 0  # tokens of the answer, as they were last counted
        self._tier = tier
        self._clean = clean
        self._chunks = ChunkReader(logprobs=logprobs, names=names)
        self._frames = SseReader()
        self._head = bytearray()
        self._json: bytearray | None = None
        self._headless = True

    @property
    def held_bytes(self) -> int:
        """How much has come that is read only at the end."""
        return 0 if self._json is None else len(self._json)

    @property
    def finishing(self) -> bool:
        """The finish reason is here: only usage and `[DONE]` may still come."""
        return self._chunks.finish is not None

    def feed(self, data: bytes) -> list[Event]:
        """Return the events of one read, as one list; empty where it completed nothing."""
        return self._collect(lambda events: self._feed(data, events))

    def end(self, *, cut: bool = False) -> list[Event]:
        """Take note that the body has ended; `cut`: not in the way that HTTP says a body ends."""
        return self._collect(lambda events: self._end(cut, events))

    def fail(self, fault: Fault, words: str) -> list[Event]:
        """End here with `fault`, unless the answer is complete already."""
        if self.finishing:
            return self.end(cut=True)
        self.over = True
        return [self._build_failed(fault, words)]

    def _collect(self, work: Callable[[list[Event]], None]) -> list[Event]:
        events: list[Event] = []
        try:
            work(events)
        except UnreadableStream as problem:
            events.append(self._build_failed(Fault.PROTOCOL, str(problem)))
        self.over = bool(events) and isinstance(events[-1], ENDS)
        return self._add_count(merge_events(events))

    def _add_count(self, events: list[Event]) -> list[Event]:
        """Add what the answer has cost so far: as the upstream says, else by an estimate."""
        written, usage = self._chunks.written, self._chunks.usage
        if not events or written == self._counted_tokens or (self.over and usage is not None):
            return events
        self._counted_tokens = written
        counted = Counted(usage or Usage(completion_tokens=written, exact=False))
        return [*events[:-1], counted, events[-1]] if self.over else [*events, counted]

    def _feed(self, data: bytes, events: list[Event]) -> None:
        data = self._skip_head(data) if self._headless else data
        if self._json is not None:
            self._json += data
            if len(self._json) > BODY_BYTES_MAX:
                raise UnreadableStream(f"sent more than {BODY_BYTES_MAX} bytes")
            return
        self._read_frames(self._frames.feed(data), events)

    def _skip_head(self, data: bytes) -> bytes:
        """Hold white space and a byte order mark until the first character shows the form of the body."""
        self._head += data
        if len(self._head) < len(_BOM) and _BOM.startswith(self._head):
            return b""
        body = bytes(self._head).removeprefix(_BOM)
        if first := body.lstrip()[:1]:
            if first == b"<":
                raise UnreadableStream(WEB_PAGE)
            self._headless, self._head = False, bytearray()
            self._json = bytearray() if first in b"{[" else None
            return body
        if len(self._head) > HEAD_BYTES_MAX:
            raise UnreadableStream(f"sent more than {HEAD_BYTES_MAX} bytes of white space")
        return b""

    def _read_frames(self, frames: list[Frame], events: list[Event]) -> None:
        for frame in frames:
            self._read_frame(frame, events)
            if events and isinstance(events[-1], ENDS):
                return

    def _read_frame(self, frame: Frame, events: list[Event]) -> None:
        data = frame.data.strip()
        if data == "[DONE]":
            if self._torn is None and self._chunks.ends_well:
                self._chunks.finish = self._chunks.finish or FinishReason.STOP
            self._finish(events, "ended its answer without a finish reason", Fault.PROTOCOL)
        elif frame.event == "error":
            self._refuse(_parse_error(data), events)
        elif data:
            try:
                chunk = _parse_chunk(data)
            except UnreadableStream as problem:
                self._skip(data, problem)
            else:
                self._torn = None
                before = len(events)
                self._read_chunk(chunk, events)
                self._bound_thought(events, before)

    def _bound_thought(self, events: list[Event], before: int) -> None:
        """End the answer within its thought, if that has to end behind these events."""
        if self._bound is None or self.finishing or (events and isinstance(events[-1], ENDS)):
            return
        why = self._bound.note(events[before:])
        if why is not None:
            usage, model = self._chunks.usage, self._chunks.model
            events.append(Finish(reason=FinishReason.STOP, usage=usage, model=model, thought=why))

    def _skip(self, data: str, problem: UnreadableStream) -> None:
        """Go on without this chunk. Raises `problem` where that can't be."""
        self._skipped += 1
        self._torn = problem
        if not self.finishing and ("{" in data or "}" in data):
            self._chunks.damaged = True
        if self._skipped > SKIPPED_MAX or (self._strict and self._chunks.damaged):
            raise problem

    def _read_chunk(self, chunk: Mapping[str, Any], events: list[Event]) -> None:
        events += self._chunks.read(chunk)
        if self._chunks.complaint is not None:
            self._refuse(self._chunks.complaint, events)

    def _refuse(self, complaint: UpstreamComplaint, events: list[Event]) -> None:
        complaint, usage = complaint.redact(self._clean), self._chunks.usage
        if not self._chunks.written and (answer := read_written(complaint, usage)):
            events += answer
            return
        events.append(translate_complaint(self._tier, complaint, usage=usage, write_asked=self._write_asked))

    def _end(self, cut: bool, events: list[Event]) -> None:
        if self._json is not None:
            self._end_json(cut, events)
            return
        before = self._skipped, self._torn, self._chunks.damaged
        try:
            self._read_frames(self._frames.close(), events)
        except UnreadableStream as problem:
            if problem is not self._torn:
                raise
        if self._skipped > before[0]:  # a last line that was torn by the cut that is reported below
            self._skipped, self._torn, self._chunks.damaged = before
        if not (events and isinstance(events[-1], ENDS)):
            self._finish(events, "broke off: the connection was cut", Fault.CRASHED)

    def _end_json(self, cut: bool, events: list[Event]) -> None:
        try:
            body = _parse_chunk(bytes(self._json or b""))
        except UnreadableStream:
            if not cut:
                raise
            events.append(self._build_failed(Fault.CRASHED, "broke off: the connection was cut"))
            return
        self._read_chunk(body, events)
        if events and isinstance(events[-1], Failed):
            return
        if not body.get("choices"):
            raise UnreadableStream("sent an answer without choices")
        # The body is complete, so a missing finish reason hides no cut here.
        self._chunks.finish = self._chunks.finish or FinishReason.STOP
        self._finish(events, "", Fault.PROTOCOL)

    def _finish(self, events: list[Event], words: str, fault: Fault) -> None:
        events += self._chunks.end()
        chunks = self._chunks
        if chunks.damaged and (self._strict or not chunks.written):
            events.append(self._build_failed(Fault.PROTOCOL, "sent an answer that can't be read"))
        elif chunks.finish is not None:
            events.append(
                Finish(
                    reason=chunks.finish,
                    usage=chunks.usage,
                    model=chunks.model,
                    notes=self._build_notes(),
                    damaged=chunks.damaged,
                    stop=chunks.stop,
                )
            )
        elif self._torn is not None:
            events.append(self._build_failed(Fault.PROTOCOL, str(self._torn)))
        else:
            events.append(self._build_failed(fault, words))

    def _build_notes(self) -> tuple[str, ...]:
        notes: list[str] = []
        if self._left_out:
            notes.append(f"tier {self._tier}: its upstream takes no {', '.join(self._left_out)}: left out")
        if self._skipped or self._chunks.damaged:
            lost = "; a piece of the answer may be missing" if self._chunks.damaged else ""
            notes.append(f"tier {self._tier}: left out what can't be read ({max(1, self._skipped)} chunks){lost}")
        if self._chunks.unknown_reason:
            notes.append(
                f"tier {self._tier}: finish reason {self._chunks.unknown_reason!r} is unknown and counts as stop"
            )
        if self._chunks.strange:
            notes.append(f"tier {self._tier}: {self._chunks.strange} chunks held nothing of an answer")
        return tuple(notes)

    def _build_failed(self, fault: Fault, words: str) -> Failed:
        return Failed(fault=fault, message=f"tier {self._tier} {words}", usage=self._chunks.usage)


def _parse_chunk(data: str | bytes) -> Mapping[str, Any]:
    if len(data) > VALUES_MAX and has_more_values(data if isinstance(data, bytes) else data.encode(), VALUES_MAX):
        raise UnreadableStream(f"sent a chunk of more than {VALUES_MAX} values")
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
    """Load a chunk; where `orjson` can't, it may hold half a character, or NaN."""
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(data)
    try:
        raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
        return read_json(raw, nan=True, halves=True)
    except (ValueError, RecursionError):
        raise UnreadableStream("sent a chunk that is not JSON") from None


def _unwrap(value: Any) -> Mapping[str, Any]:
    if isinstance(value, list) and value:
        value = value[0]  # some gateways wrap an error in a list
    if not isinstance(value, dict):
        raise UnreadableStream("sent a chunk that is not an object")
    return value


def _has_object(chunk: Mapping[str, Any], data: str | bytes) -> bool:
    """Return whether a call's arguments are no text, or stand there twice. Only then must each key be looked at, and
    must integers keep all their digits."""
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
    if not functions:
        return False
    given = [one.get("arguments") for one in functions if isinstance(one, dict)]
    for value in given:
        if value is not None and not isinstance(value, str):
            return True
    spelled = data.count('"arguments"') if isinstance(data, str) else data.count(b'"arguments"')
    return spelled > len(given)


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object; refuse one with a key twice and two values: the last would count without a word."""
    found = dict(pairs)
    if len(found) < len(pairs) and any(json.dumps(found[key]) != json.dumps(value) for key, value in pairs):
        raise UnreadableStream("sent a call with one key twice")
    return found


def _parse_error(data: str) -> UpstreamComplaint:
    try:
        return read_complaint(json.loads(data))
    except (ValueError, RecursionError):
        return UpstreamComplaint(message=data)
