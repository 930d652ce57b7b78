"""Server-sent events, bytes in and frames out. No I/O: whoever owns the connection feeds it.

The reader is always between two lines or inside one (`_tail`), and always between two frames or inside one
(`_data`). A line ends at CR, LF or CRLF; a CR that ends a read is a whole line end, and an LF that follows
in the next read belongs to it. A frame ends at an empty line. The frames don't depend on where the network
cut the bytes.

What must never happen: a line or a frame grows without bound (`TooLong`), or a character is torn, which is
why lines are decoded whole.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FRAME_BYTES_MAX", "LINE_BYTES_MAX", "Frame", "SseReader", "TooLong"]

LINE_BYTES_MAX = 4 * 1024 * 1024
FRAME_BYTES_MAX = 8 * 1024 * 1024


class TooLong(ValueError):
    """A line or a frame is over its bound."""


@dataclass(frozen=True, slots=True)
class Frame:
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
        self._tail += data
        if b"\n" not in data and b"\r" not in data:
            self._check(len(self._tail), LINE_BYTES_MAX)
            return []
        lines = self._tail.splitlines()  # of bytes: CR, LF and CRLF, nothing else
        whole = self._tail.endswith((b"\n", b"\r"))
        self._tail = bytearray() if whole else lines.pop()
        return [frame for line in lines if (frame := self._line(line)) is not None]

    def close(self) -> list[Frame]:
        """The stream has ended: what is left counts, whether or not an empty line closed it."""
        frames = [self._line(self._tail)] if self._tail else []
        frames.append(self._line(bytearray()))
        self._tail = bytearray()
        return [frame for frame in frames if frame is not None]

    def _line(self, line: bytearray) -> Frame | None:
        self._check(len(line), LINE_BYTES_MAX)
        if not line:
            return self._dispatch()
        if line.startswith(b":"):
            return None
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if field == b"data":
            self._data_bytes += len(value) + 1
            self._check(self._data_bytes, FRAME_BYTES_MAX)
            self._data.append(text)
        elif field == b"event":
            self._event = text
        return None

    def _dispatch(self) -> Frame | None:
        frame = Frame("\n".join(self._data), self._event) if self._data else None
        self._data, self._data_bytes, self._event = [], 0, ""
        return frame

    @staticmethod
    def _check(size: int, bound: int) -> None:
        if size > bound:
            raise TooLong(f"more than {bound} bytes")
