"""The body of an upstream's answer that is passed on as it is (`/completions`, `/embeddings`). No I/O.

Only `model` becomes the tier's name, and the usage is read; vectors that were asked for as base64 are sent so. A frame
that can't be read ends the answer. Invariants: an answer that was cut never ends as if it were complete; no error is
passed on as an answer.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from deployments.tiers.hosted.chat_chunks import read_usage
from deployments.tiers.hosted.sse_reader import WEB_PAGE, Frame, SseReader, UnreadableStream
from deployments.tiers.hosted.upstream_errors import read_complaint, translate_complaint
from deployments.work.json_text import read_json, write_json
from reliability.answer.estimate import text_bytes, tokens_near
from reliability.surrogates import Halves
from reliability.types import ENDS, ChatRequest, Counted, Event, Failed, Fault, Finish, FinishReason, Passed, Usage

BODY_BYTES_MAX = 64 * 1024 * 1024  # two thousand vectors of three thousand figures are 130 MB: ask in halves
PIECE_BYTES = 256 * 1024  # a piece is one message between replicas
OURS = frozenset({"model", "models", "fallbacks", "max_tokens", "n", "stream_options"})


def cut_list(events: list[Event]) -> Iterable[list[Event]]:
    """Cut a list so that each part fits into one message between replicas. Most lists are short."""
    if not any(isinstance(event, Passed) for event in events):
        return (events,)
    parts: list[list[Event]] = [[]]
    size = 0
    for event in events:
        more = len(event.data) if isinstance(event, Passed) else 0
        if size + more > PIECE_BYTES and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(event)
        size += more
    return parts


def build_passed_body(request: ChatRequest, model: str) -> bytes:
    """Build the bytes to send. Raises ValueError or TypeError where the request can't be written as JSON."""
    body: dict[str, Any] = {key: value for key, value in request.extra.items() if key not in OURS}
    body["model"] = model
    if request.route == "/completions":
        # The cap is that of all answers together; the upstream gives the best of them.
        body["max_tokens"] = request.max_tokens // (body.get("best_of") or 1)
    if body.get("stream"):
        body["stream_options"] = {"include_usage": True}
    return write_json(body)


class PassedReader:
    """Reads the body of one answer of one tier to `body`, the fields of the request."""

    def __init__(self, tier: str, clean: Callable[[str], str], body: Mapping[str, Any]) -> None:
        self.over = False
        self.finishing = False
        self._tier, self._clean, self._body = tier, clean, body
        self._stream = bool(body.get("stream"))
        self._usage_wanted = bool((body.get("stream_options") or {}).get("include_usage"))
        # With `echo` the answer begins with the prompt, which nobody has written.
        self._echoed_bytes = text_bytes(body["prompt"]) if body.get("echo") else 0
        self._frames = SseReader()
        self._json: bytearray | None = None if self._stream else bytearray()
        self._headless = True
        self._halves: dict[str, Halves] = {}
        self._usage: Usage | None = None
        self._written_tokens = 0

    @property
    def held_bytes(self) -> int:
        """How much has come that is read only at the end."""
        return 0 if self._json is None else len(self._json)

    def feed(self, data: bytes) -> list[Event]:
        """Return the events of one read, as one list; empty where it completed nothing."""
        if self._headless and (first := data.lstrip()[:1]):
            self._headless = False
            if first == b"<":
                return self.fail(Fault.PROTOCOL, WEB_PAGE)
            if first == b"{":  # an upstream that ignored `stream`
                self._json = self._json if self._json is not None else bytearray()
        if self._json is None:
            return self._collect(lambda: self._read_frames(self._frames.feed(data)))
        self._json += data
        if len(self._json) > BODY_BYTES_MAX:
            return self.fail(Fault.PROTOCOL, f"sent more than {BODY_BYTES_MAX} bytes")
        return []

    def end(self, *, cut: bool = False) -> list[Event]:
        """Take note that the body has ended; `cut`: not in the way that HTTP says a body ends."""
        if self._json is None:
            return self._collect(self._end_frames)
        return self._collect(lambda: self._end_json(bytes(self._json or b""), cut))

    def fail(self, fault: Fault, words: str) -> list[Event]:
        """End here with `fault`, unless the answer is complete already."""
        self.over = True
        return [self._finish() if self.finishing else self._build_failed(fault, words)]

    def _collect(self, work: Callable[[], list[Event]]) -> list[Event]:
        try:
            events = work()
        except UnreadableStream as problem:
            events = [self._build_failed(Fault.PROTOCOL, str(problem))]
        self.over = bool(events) and isinstance(events[-1], ENDS)
        return events

    def _read_frames(self, frames: list[Frame]) -> list[Event]:
        events: list[Event] = []
        for frame in frames:
            events += self._read_frame(frame)
            if events and isinstance(events[-1], ENDS):
                return events
        if events and self._usage is None:
            events.append(Counted(Usage(completion_tokens=self._written_tokens, exact=False)))
        return events

    def _read_frame(self, frame: Frame) -> list[Event]:
        data = frame.data.strip()
        if data == "[DONE]":
            return [self._finish()]
        if frame.event == "error":
            return [self._refuse(_parse(data.encode()))]
        return self._read_object(_parse(data.encode())) if data else []

    def _read_object(self, value: dict[str, Any]) -> list[Event]:
        """Read one frame, or a body where frames were asked for."""
        if value.get("error"):
            return [self._refuse(value)]
        choices = value.get("choices")
        self._usage = read_usage(value.get("usage")) or self._usage
        if choices == [] and value.get("usage") and not self._usage_wanted:
            return []
        pieces = [choice for choice in choices or () if isinstance(choice, dict)]
        for choice in pieces:
            self._join_text(choice)
        self.finishing |= any(choice.get("finish_reason") for choice in pieces)
        written = sum(self._count_written(choice.get("text")) for choice in pieces)
        return [Passed(write_json(value | {"model": self._tier}), written)]

    def _join_text(self, choice: dict[str, Any]) -> None:
        """Join the halves of a character that came in two frames: the second frame says all of it."""
        if isinstance(choice.get("text"), str):
            halves = self._halves.setdefault(str(choice.get("index")), Halves())
            last = not self._stream or choice.get("finish_reason")
            choice["text"] = halves.take(choice["text"]) + (halves.end() if last else "")

    def _count_written(self, text: Any) -> int:
        if not isinstance(text, str) or not text:
            return 0
        size = text_bytes(text)
        echoed = min(size, self._echoed_bytes)
        self._echoed_bytes -= echoed
        self._written_tokens += tokens_near(text) if size > echoed else 0
        return size - echoed

    def _end_frames(self) -> list[Event]:
        events = self._read_frames(self._frames.close())
        if events and isinstance(events[-1], ENDS):
            return events
        return [*events, self._finish() if self.finishing else self._build_cut()]

    def _end_json(self, body: bytes, cut: bool) -> list[Event]:
        try:
            value = _parse(body)
        except UnreadableStream:
            if cut:
                return [self._build_cut()]
            raise
        if not value.get("error") and not isinstance(value.get("choices", value.get("data")), list):
            raise UnreadableStream("sent an answer that is none")
        if self._body.get("encoding_format") == "base64":
            _encode_vectors(value.get("data"))
        events = self._read_object(value)
        if isinstance(events[-1], Failed):
            return events
        return [*(events if self._stream else _cut_pieces(events)), self._finish()]

    def _refuse(self, value: Mapping[str, Any]) -> Failed:
        complaint, asked = read_complaint(value).redact(self._clean), partial(write_json, self._body)
        return translate_complaint(self._tier, complaint, usage=self._usage, write_asked=asked)

    def _finish(self) -> Finish:
        return Finish(reason=FinishReason.STOP, usage=self._usage)

    def _build_cut(self) -> Failed:
        return self._build_failed(Fault.CRASHED, "broke off: the connection was cut")

    def _build_failed(self, fault: Fault, words: str) -> Failed:
        return Failed(fault=fault, message=f"tier {self._tier} {words}", usage=self._usage)


def _parse(data: bytes) -> dict[str, Any]:
    try:
        value = read_json(data, halves=True)
    except (ValueError, RecursionError):
        raise UnreadableStream("sent an answer that is not JSON") from None
    if not isinstance(value, dict):
        raise UnreadableStream("sent an answer that is not an object")
    return value


def _encode_vectors(data: Any) -> None:
    """Write vectors as base64 where the upstream wrote figures: openai's package for Node asks for base64 unless its
    caller chooses, and reads figures as an empty vector. Raises `UnreadableStream`: not all of it are figures."""
    for entry in data if isinstance(data, list) else ():
        vector = entry.get("embedding") if isinstance(entry, dict) else None
        if not isinstance(vector, list):
            continue
        try:
            entry["embedding"] = b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        except (struct.error, OverflowError):
            raise UnreadableStream("sent a vector that is none") from None


def _cut_pieces(events: list[Event]) -> list[Event]:
    """Cut one body into pieces; the first one has what was written."""
    out: list[Event] = []
    for event in events:
        if isinstance(event, Passed):
            pieces = [event.data[at : at + PIECE_BYTES] for at in range(0, len(event.data), PIECE_BYTES)]
            out += [Passed(piece, 0 if i else event.text_bytes) for i, piece in enumerate(pieces)]
    return out
