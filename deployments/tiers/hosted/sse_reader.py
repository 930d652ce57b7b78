"""Server-sent events, bytes in and frames out. No I/O: the owner of the connection feeds it.

A line ends at CR, LF or CRLF, a frame at an empty line; the frames don't depend on where the network cut the bytes.
Invariants: no line or frame grows without bound (`UnreadableStream`); no character is torn: whole lines are decoded.
"""

from __future__ import annotations

from typing import NamedTuple

LINE_BYTES_MAX = 4 * 1024 * 1024
FRAME_BYTES_MAX = 8 * 1024 * 1024


class UnreadableStream(ValueError):
    """What an upstream sent is no answer, or over a bound; the text says what it did, without its bytes."""


class Frame(NamedTuple):
    """One event of the stream; `event` is empty where the upstream named none."""

    data: str
    event: str = ""


class SseReader:
    """Reads one stream of server-sent events."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self._after_cr = False
        self._data: list[str] = []
        self._data_bytes = 0
        self._event = ""

    def feed(self, data: bytes) -> list[Frame]:
        """Take the bytes of one read; give the frames that they complete."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        if b"\n" not in data and b"\r" not in data:
            self._tail += data
            _check_size(len(self._tail), LINE_BYTES_MAX)
            return []
        lines = (bytes(self._tail) + data).splitlines()  # of bytes: CR, LF and CRLF, nothing else
        self._tail = bytearray() if data.endswith((b"\n", b"\r")) else bytearray(lines.pop())
        frames = []
        for line in lines:
            if line:
                self._read_field(line)
            elif (frame := self._dispatch()) is not None:
                frames.append(frame)
        return frames

    def close(self) -> list[Frame]:
        """End the stream and return the frame that is left, whether or not an empty line closed it."""
        self._read_field(bytes(self._tail))
        self._tail = bytearray()
        frame = self._dispatch()
        return [] if frame is None else [frame]

    def _read_field(self, line: bytes) -> None:
        _check_size(len(line), LINE_BYTES_MAX)
        field, _, raw = line.partition(b":")  # of a comment, an empty field
        value = raw.removeprefix(b" ").decode("utf-8", "replace")
        if field == b"data":
            self._data_bytes += len(raw) + 1
            _check_size(self._data_bytes, FRAME_BYTES_MAX)
            self._data.append(value)
        elif field == b"event":
            self._event = value
        elif field == b"error":  # llama.cpp's own field: what it holds is an error's data
            self._data, self._event = [value], "error"

    def _dispatch(self) -> Frame | None:
        frame = Frame("\n".join(self._data), self._event) if self._data else None
        self._data, self._data_bytes, self._event = [], 0, ""
        return frame


def _check_size(size: int, bound: int) -> None:
    if size > bound:
        raise UnreadableStream("sent a line that is too long")
