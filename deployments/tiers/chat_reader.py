"""The body of an answer, from its bytes to the events of one attempt, the last one included. No I/O.

Which form the body has is read off its first character, since upstreams' content types lie: `{` begins one
JSON object (an upstream that ignored `stream`), anything else is server-sent events.

    head ──▶ frames ──▶ over        frames: each frame is a chunk, an error or `[DONE]`
      └────▶ json ────▶ over        json: collected whole, then read as one chunk

`over` is reached once, with a `Finish` or a `Failed`. A stream may end without `[DONE]` if a finish reason
was seen; one that ends without a finish reason was cut, whatever else it said. `Finish` waits for the end,
since usage comes after the finish reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import orjson

from deployments.tiers.call_deltas import TooManyCalls
from deployments.tiers.chat_chunks import ChunkReader
from deployments.tiers.faults import Complaint, failed, read_complaint
from deployments.tiers.merging import merged
from deployments.tiers.sse_reader import Frame, SseReader, TooLong
from reliability.types import Event, Failed, Fault, Finish, FinishReason

__all__ = ["BODY_BYTES_MAX", "ChatReader"]

BODY_BYTES_MAX = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class _Unreadable(ValueError):
    """The upstream doesn't speak chat completions; the text says how, without its bytes."""


class ChatReader:
    """Reads the body of one answer of one tier; with `logprobs`, the probabilities of its tokens too."""

    def __init__(self, tier: str, clean: Callable[[str], str], *, logprobs: bool = False) -> None:
        self.over = False
        self._tier = tier
        self._clean = clean
        self._chunks = ChunkReader(logprobs=logprobs)
        self._frames = SseReader()
        self._head = bytearray()
        self._json: bytearray | None = None
        self._headless = True

    @property
    def finishing(self) -> bool:
        """The finish reason is here: only usage and `[DONE]` may still come."""
        return self._chunks.finish is not None

    def feed(self, data: bytes) -> list[Event]:
        """The events of one read, as one list; empty where it completed nothing."""
        return self._guarded(lambda events: self._feed(data, events))

    def end(self, *, cut: bool = False) -> list[Event]:
        """The body has ended; `cut`: not in the way that HTTP says a body ends."""
        return self._guarded(lambda events: self._end(cut, events))

    def fail(self, fault: Fault, words: str) -> list[Event]:
        """End here with `fault`, unless the answer is complete already."""
        if self.finishing:
            return self.end(cut=True)
        self.over = True
        return [self._failed(fault, words)]

    def _guarded(self, work: Callable[[list[Event]], None]) -> list[Event]:
        events: list[Event] = []
        try:
            work(events)
        except _Unreadable as problem:
            events.append(self._failed(Fault.PROTOCOL, str(problem)))
        except TooLong:
            events.append(self._failed(Fault.PROTOCOL, "sent a line that is too long"))
        except TooManyCalls as problem:
            events.append(self._failed(Fault.PROTOCOL, f"sent {problem}"))
        self.over = bool(events) and isinstance(events[-1], Finish | Failed)
        return merged(events)

    def _feed(self, data: bytes, events: list[Event]) -> None:
        data = self._past_head(data) if self._headless else data
        if self._json is not None:
            self._json += data
            if len(self._json) > BODY_BYTES_MAX:
                raise _Unreadable(f"sent more than {BODY_BYTES_MAX} bytes")
            return
        self._read_frames(self._frames.feed(data), events)

    def _past_head(self, data: bytes) -> bytes:
        """Hold white space and a byte order mark until the first character shows the form of the body."""
        self._head += data
        if len(self._head) > BODY_BYTES_MAX:
            raise _Unreadable(f"sent more than {BODY_BYTES_MAX} bytes")
        if len(self._head) < len(_BOM) and _BOM.startswith(self._head):
            return b""
        body = bytes(self._head).removeprefix(_BOM)
        if first := body.lstrip()[:1]:
            self._headless, self._head = False, bytearray()
            self._json = bytearray() if first in b"{[" else None
            return body
        return b""

    def _read_frames(self, frames: list[Frame], events: list[Event]) -> None:
        for frame in frames:
            self._frame(frame, events)
            if events and isinstance(events[-1], Finish | Failed):
                return

    def _frame(self, frame: Frame, events: list[Event]) -> None:
        data = frame.data.strip()
        if data == "[DONE]":
            self._finish(events, "ended its answer without a finish reason", Fault.PROTOCOL)
        elif frame.event == "error":
            self._refuse(_parsed_error(data), events)
        elif data:
            self._chunk(_parsed(data), events)

    def _chunk(self, chunk: Mapping[str, Any], events: list[Event]) -> None:
        events += self._chunks.read(chunk)
        if self._chunks.complaint is not None:
            self._refuse(self._chunks.complaint, events)

    def _refuse(self, complaint: Complaint, events: list[Event]) -> None:
        events.append(failed(self._tier, complaint.cleaned(self._clean), usage=self._chunks.usage))

    def _end(self, cut: bool, events: list[Event]) -> None:
        if self._json is not None:
            self._end_json(cut, events)
            return
        with suppress(_Unreadable):  # a last line that was torn by the cut that is reported below
            self._read_frames(self._frames.close(), events)
        if not (events and isinstance(events[-1], Finish | Failed)):
            self._finish(events, "broke off: the connection was cut", Fault.CRASHED)

    def _end_json(self, cut: bool, events: list[Event]) -> None:
        try:
            body = _parsed(bytes(self._json or b""))
        except _Unreadable:
            if not cut:
                raise
            events.append(self._failed(Fault.CRASHED, "broke off: the connection was cut"))
            return
        self._chunk(body, events)
        if events and isinstance(events[-1], Failed):
            return
        if not body.get("choices"):
            raise _Unreadable("sent an answer without choices")
        # The body is whole, so a missing finish reason hides no cut here.
        self._chunks.finish = self._chunks.finish or FinishReason.STOP
        self._finish(events, "", Fault.PROTOCOL)

    def _finish(self, events: list[Event], words: str, fault: Fault) -> None:
        events += self._chunks.end()
        if self._chunks.finish is None:
            events.append(self._failed(fault, words))
        else:
            usage, model = self._chunks.usage, self._chunks.model
            events.append(Finish(reason=self._chunks.finish, usage=usage, model=model))

    def _failed(self, fault: Fault, words: str) -> Failed:
        return Failed(fault=fault, message=f"tier {self._tier} {words}", usage=self._chunks.usage)


def _parsed(data: str | bytes) -> Mapping[str, Any]:
    try:
        value = _loaded(data)
    except (ValueError, RecursionError):
        raise _Unreadable("sent a chunk that is not JSON") from None
    if isinstance(value, list) and value:
        value = value[0]  # some gateways wrap an error in a list
    if not isinstance(value, dict):
        raise _Unreadable("sent a chunk that is not an object")
    return value


def _loaded(data: str | bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data)  # knows NaN and half characters, and takes four times as long


def _parsed_error(data: str) -> Complaint:
    try:
        return read_complaint(json.loads(data))
    except (ValueError, RecursionError):
        return Complaint(message=data)
