"""The body of an upstream's answer that is passed on as it is (`/completions`, `/embeddings`). No I/O.

Only `model` becomes the tier's name, and the usage is read. A frame that can't be read ends the answer. Invariants: an
answer that was cut never ends as if it were complete; no error is passed on as an answer.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from deployments.tiers.hosted.body_reader import CUT, BodyReader, has_end
from deployments.tiers.hosted.chat_chunks import read_usage
from deployments.tiers.hosted.sse_reader import UnreadableStream
from deployments.tiers.hosted.upstream_errors import read_complaint
from deployments.work.json_text import read_json, write_json
from reliability.answer.estimate import text_bytes, tokens_near
from reliability.surrogates import Halves
from reliability.types import ChatRequest, Event, Fault, Finish, FinishReason, Passed

_BODY_BYTES_MAX = 64 * 1024 * 1024  # two thousand vectors of three thousand figures are 130 MB: ask in halves
PIECE_BYTES = 256 * 1024  # a piece is one message between replicas
_OURS = frozenset({"model", "models", "fallbacks", "max_tokens", "n", "stream_options"})


def cut_list(events: list[Event]) -> list[list[Event]]:
    """Cut a list so that each part fits into one message between replicas."""
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
    body = {key: value for key, value in request.extra.items() if key not in _OURS} | {"model": model}
    if request.route == "/completions":
        # The cap is that of all answers together; the upstream gives the best of them.
        body["max_tokens"] = request.max_tokens // (body.get("best_of") or 1)
    if body.get("stream"):
        body["stream_options"] = {"include_usage": True}
    return write_json(body)


class PassedReader(BodyReader):
    """Reads the body of one answer to `body`, the fields of the request."""

    def __init__(self, tier: str, clean: Callable[[str], str], body: Mapping[str, Any]) -> None:
        self._body, self._stream = body, bool(body.get("stream"))
        write = partial(write_json, body)
        super().__init__(tier, clean, write, _parse, bytes_max=_BODY_BYTES_MAX, streams=self._stream)
        self._usage_wanted = bool((body.get("stream_options") or {}).get("include_usage"))
        # With `echo` the answer begins with the prompt, which nobody has written.
        self._echoed_bytes = text_bytes(body["prompt"]) if body.get("echo") else 0
        self._halves: dict[str, Halves] = {}

    def _read_data(self, data: str, events: list[Event]) -> None:
        self._read_object(_parse(data), events)

    def _read_object(self, value: dict[str, Any], events: list[Event]) -> None:
        if value.get("error"):
            self._refuse(read_complaint(value), events)
            return
        choices = value.get("choices")
        self.usage = read_usage(value.get("usage")) or self.usage
        if choices == [] and value.get("usage") and not self._usage_wanted:
            return
        pieces = [choice for choice in choices or () if isinstance(choice, dict)]
        for choice in pieces:
            if isinstance(choice.get("text"), str):
                halves = self._halves.setdefault(str(choice.get("index")), Halves())
                last = not self._stream or choice.get("finish_reason")
                choice["text"] = halves.take(choice["text"]) + (halves.end() if last else "")
        self.finishing |= any(choice.get("finish_reason") for choice in pieces)
        written = sum(self._count_written(choice.get("text")) for choice in pieces)
        events.append(Passed(write_json(value | {"model": self._tier}), written))

    def _count_written(self, text: Any) -> int:
        if not isinstance(text, str) or not text:
            return 0
        size = text_bytes(text)
        echoed = min(size, self._echoed_bytes)
        self._echoed_bytes -= echoed
        self.written_tokens += tokens_near(text) if size > echoed else 0
        return size - echoed

    def _read_rest(self, events: list[Event]) -> None:
        try:
            super()._read_rest(events)
        except UnreadableStream:
            if not self.finishing:
                raise

    def _end_frames(self, events: list[Event], *, done: bool = False) -> None:
        complete = done or self.finishing
        events.append(self._finish() if complete else self._build_failed(Fault.CRASHED, CUT))

    def _read_json(self, value: dict[str, Any], events: list[Event]) -> None:
        if not value.get("error") and not isinstance(value.get("choices", value.get("data")), list):
            raise UnreadableStream("sent an answer that is none")
        if self._body.get("encoding_format") == "base64":
            _encode_vectors(value.get("data"))
        self._read_object(value, events)
        if has_end(events):
            return
        if not self._stream:
            events[:] = _cut_pieces(events)
        events.append(self._finish())

    def _finish(self) -> Finish:
        return Finish(reason=FinishReason.STOP, usage=self.usage)


def _parse(data: str | bytes) -> dict[str, Any]:
    try:
        value = read_json(data.encode() if isinstance(data, str) else data, halves=True)
    except (ValueError, RecursionError):
        raise UnreadableStream("sent an answer that is not JSON") from None
    if not isinstance(value, dict):
        raise UnreadableStream("sent an answer that is not an object")
    return value


def _encode_vectors(data: Any) -> None:
    """Write vectors as base64 where the upstream wrote figures, which openai's package for Node reads as an empty
    vector. Raises `UnreadableStream`: not all of it are figures."""
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
