"""The body of an upstream's answer, from its bytes to what a reader of one form of answers makes of them. No I/O.

The first character says the form, since content types lie: `{` and `[` begin one JSON value, `<` a web page, anything
else is server-sent events. Invariant: what the frames of one read were cut into changes no event.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from deployments.tiers.hosted.sse_reader import Frame, SseReader, UnreadableStream
from deployments.tiers.hosted.upstream_errors import UpstreamComplaint, read_error_body, translate_complaint
from deployments.tiers.stream_matchers import merge_events
from reliability.types import ENDS, Counted, Event, Failed, Fault, Usage

CUT = "broke off: the connection was cut"
_HEAD_BYTES_MAX = 64 * 1024  # white space before the first character
_BOM = b"\xef\xbb\xbf"


class BodyReader(ABC):
    """Reads the body of one answer of one tier, of at most `bytes_max` where it is one JSON value. `parse` parses that,
    or a frame's data; `clean` takes the secrets out of an upstream's words; `write_asked`: as of `translate_complaint`;
    `streams`: frames were asked for. `finishing`: only usage and `[DONE]` may still come; `usage`: as the upstream has
    counted; `written_tokens`: by an estimate."""

    def __init__(
        self,
        tier: str,
        clean: Callable[[str], str],
        write_asked: Callable[[], bytes],
        parse: Callable[[str | bytes], dict[str, Any]],
        *,
        bytes_max: int,
        streams: bool,
    ) -> None:
        self.over = self.finishing = False
        self.usage: Usage | None = None
        self.written_tokens = self._counted_tokens = 0
        self._tier, self._clean, self._write_asked = tier, clean, write_asked
        self._parse, self._bytes_max = parse, bytes_max
        self._frames = SseReader()
        self._head, self._headless = bytearray(), True
        self._json: bytearray | None = None if streams else bytearray()

    @property
    def held_bytes(self) -> int:
        """How much has come that is read only at the end."""
        return 0 if self._json is None else len(self._json)

    def feed(self, data: bytes) -> list[Event]:
        """Return the events of one read, as one list; empty where it completed nothing."""
        return self._collect(self._feed, data)

    def end(self, *, cut: bool = False) -> list[Event]:
        """Take note that the body has ended; `cut`: not in the way that HTTP says a body ends."""
        return self._collect(self._end, cut)

    def fail(self, fault: Fault, words: str) -> list[Event]:
        """End here with `fault`, unless the answer is complete already."""
        if self.finishing:
            return self.end(cut=True)
        self.over = True
        return [self._build_failed(fault, words)]

    @abstractmethod
    def _read_data(self, data: str, events: list[Event]) -> None:
        """Read the data of a frame."""

    @abstractmethod
    def _read_json(self, value: dict[str, Any], events: list[Event]) -> None:
        """Read a complete body that is one JSON value, up to its end."""

    @abstractmethod
    def _end_frames(self, events: list[Event], *, done: bool = False) -> None:
        """End a stream; `done`: by `[DONE]`."""

    def _collect(self, work: Callable[[Any, list[Event]], None], given: object) -> list[Event]:
        events: list[Event] = []
        try:
            work(given, events)
        except UnreadableStream as problem:
            if self.finishing:
                self._end_frames(events, done=True)
            else:
                events.append(self._build_failed(Fault.PROTOCOL, str(problem)))
        self.over = has_end(events)
        return self._add_count(merge_events(events))

    def _add_count(self, events: list[Event]) -> list[Event]:
        """Add what the answer has cost so far: as the upstream says, else by an estimate."""
        tokens = self.written_tokens
        if not events or tokens == self._counted_tokens or (self.over and self.usage is not None):
            return events
        self._counted_tokens = tokens
        counted = Counted(self.usage or Usage(completion_tokens=tokens, exact=False))
        return [*events[:-1], counted, events[-1]] if self.over else [*events, counted]

    def _feed(self, data: bytes, events: list[Event]) -> None:
        data = self._skip_head(data) if self._headless else data
        if self._json is None:
            self._read_frames(self._frames.feed(data), events)
            return
        self._json += data
        if len(self._json) > self._bytes_max:
            raise UnreadableStream(f"sent more than {self._bytes_max} bytes")

    def _skip_head(self, data: bytes) -> bytes:
        self._head += data
        if len(self._head) < len(_BOM) and _BOM.startswith(self._head):
            return b""
        body = bytes(self._head).removeprefix(_BOM)
        if first := body.lstrip()[:1]:
            if first == b"<":
                raise UnreadableStream("answered with a web page: is its base_url right?")
            self._headless, self._head = False, bytearray()
            self._json = bytearray() if first in b"{[" else self._json
            return body
        if len(self._head) > _HEAD_BYTES_MAX:
            raise UnreadableStream(f"sent more than {_HEAD_BYTES_MAX} bytes of white space")
        return b""

    def _read_frames(self, frames: list[Frame], events: list[Event]) -> None:
        for frame in frames:
            data = frame.data.strip()
            if data == "[DONE]":
                self._end_frames(events, done=True)
            elif frame.event == "error":
                self._refuse(read_error_body(data.encode()), events)
            elif data:
                self._read_data(data, events)
            if has_end(events):
                return

    def _end(self, cut: bool, events: list[Event]) -> None:
        if self._json is not None:
            try:
                value = self._parse(bytes(self._json))
            except UnreadableStream:
                if not cut:
                    raise
                events.append(self._build_failed(Fault.CRASHED, CUT))
            else:
                self._read_json(value, events)
            return
        self._read_rest(events)
        if not has_end(events):
            self._end_frames(events)

    def _read_rest(self, events: list[Event]) -> None:
        self._read_frames(self._frames.close(), events)

    def _refuse(self, complaint: UpstreamComplaint, events: list[Event]) -> None:
        if self.finishing:  # the answer is complete: this is about what comes behind it
            self._end_frames(events, done=True)
            return
        clean = complaint.redact(self._clean)
        events.append(translate_complaint(self._tier, clean, usage=self.usage, write_asked=self._write_asked))

    def _build_failed(self, fault: Fault, words: str) -> Failed:
        return Failed(fault=fault, message=f"tier {self._tier} {words}", usage=self.usage)


def has_end(events: Sequence[Event]) -> bool:
    """Tell whether the attempt is over with these events."""
    return bool(events) and isinstance(events[-1], ENDS)
