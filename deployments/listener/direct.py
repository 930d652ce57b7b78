"""The listener without HAProxy: uvicorn's protocol, with bounds on slow clients and errors in JSON.

A head has `header_s` and `HEADER_BYTES_MAX` (408, 431); a client that takes no byte for `unread_s` is cut, the kernel's
queue counted; at most `_WAITING_MAX` connections wait for a head. Ray reads some headers as UTF-8: others are read as
latin-1. Ray calls `install` where `serve.env` says so. The body's bound is the Router's (`api/body.py`).
Invariants: an error never stands in the middle of an answer; no timer outlives its connection by more than its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import resource
import socket
import struct
import sys
from typing import Any, ClassVar, cast

import httptools
import orjson
import uvicorn.config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from deployments.errors import ApiError
from deployments.listener.haproxy import HEADER_BYTES_MAX, HEADER_S, SLOW, UNREAD_S, UNREADABLE, read_seconds
from deployments.listener.listening import is_request_id

_LINGER_S = 1.0  # so long the client may finish sending after an error
_WAITING_MAX = 1024
_UNREAD_BYTES_MAX = 134_217_728  # of all answers that wait for their clients; a list may be of 4 MiB
_FIRST_BYTES, _FIRST_S = 1024, 0.001
_LOOKS = 4  # how often an unread connection is looked at, in its time
_BEHIND_HAPROXY = 10  # how many times as long HAProxy may take nothing
# The kernel doubles it; what is sent and not taken should be seen soon, and not fit into the kernel's megabytes.
_SEND_BUFFER_BYTES = 65_536
_UNREAD_QUEUE = 0x5411  # Linux: SIOCOUTQ
_SO_NWRITE = 0x1024  # macOS
_OF_THE_CONNECTION = (b"connection", b"proxy-connection")
_TOO_LARGE = f"the headers are over {HEADER_BYTES_MAX} bytes: send fewer or shorter ones"


def _find_waiting_max() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _WAITING_MAX if soft == resource.RLIM_INFINITY else max(1, min(_WAITING_MAX, soft // 4))


def install() -> list[Any]:
    """Make `ListenerProtocol` uvicorn's default in this process; return no middlewares. Raises ValueError: one line."""
    _read_times()
    uvicorn.config.HTTP_PROTOCOLS["auto"] = f"{__name__}:ListenerProtocol"
    return []


def _read_times() -> tuple[float, float]:
    unread_s = read_seconds(os.environ, "MLX_STACK_UNREAD_S", UNREAD_S)
    behind = os.environ.get("RAY_SERVE_ENABLE_HA_PROXY") == "1"
    return read_seconds(os.environ, "MLX_STACK_HEADER_S", HEADER_S), unread_s * (_BEHIND_HAPROXY if behind else 1)


class ListenerProtocol(HttpToolsProtocol):
    """One connection."""

    _waiting: ClassVar[dict[ListenerProtocol, None]] = {}  # of this process, for a head; the longest first
    _untaken: ClassVar[dict[ListenerProtocol, None]] = {}  # for their clients to take more

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_s, self._unread_s = _read_times()
        self._head_clock: asyncio.TimerHandle | None = None
        self._unread_clock: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._open_bytes = 0  # of a header, a chunk's size or a trailer that has no end yet
        self._in_head = True
        self._refused: ApiError | None = None
        self._over = False  # nothing that still comes is read
        self._left_bytes, self._moved_s = 0, 0.0
        self._paused_bytes, self._paused_s = 0, 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the first request's time."""
        super().connection_made(transport)
        if (peer := transport.get_extra_info("socket")) is not None:
            with contextlib.suppress(OSError):
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._start_head_clock()
        self._wait()

    def _wait(self) -> None:
        waiting = ListenerProtocol._waiting
        waiting.pop(self, None)
        waiting[self] = None
        if len(waiting) > _find_waiting_max():
            longest = next(iter(waiting))
            del waiting[longest]
            longest.transport.close()

    def data_received(self, data: bytes) -> None:
        """Read on, within the bounds of a head."""
        if self._refused is not None or self._over:
            return
        self._open_bytes += len(data)
        self._parse(data)
        if self._open_bytes > HEADER_BYTES_MAX:  # the parser keeps it, and has reported nothing of it
            self._refuse(ApiError("headers_too_large", _TOO_LARGE))

    def _parse(self, data: bytes) -> None:
        """Do as uvicorn does, but for an upgrade to what this server doesn't speak: the parser leaves it at the head's
        end, so that head is parsed again without it, and the body behind it as ever (RFC 9110, 7.8)."""
        self._unset_keepalive_if_required()
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserError:
                self._refuse(ApiError("invalid_request", UNREADABLE))
                return
            except httptools.HttpParserUpgrade as end:
                if self._should_upgrade():
                    self.handle_websocket_upgrade()
                    return
                data = self._write_head_anew() + data[end.args[0] :]

    def _write_head_anew(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
        return b"\r\n".join((*lines, b"", b""))

    def _ignores_upgrade(self) -> bool:
        return self.parser.should_upgrade() and not self._should_upgrade()

    def on_message_begin(self) -> None:
        """Begin a request's time at its first byte."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self._start_head_clock()

    def _count(self, size: int) -> None:
        self._open_bytes, self._head_bytes = 0, self._head_bytes + size
        if self._head_bytes > HEADER_BYTES_MAX:
            self._refuse(ApiError("headers_too_large", _TOO_LARGE))
            raise ValueError("headers too large")  # the parser stops, and says so to `_parse`

    def on_url(self, url: bytes) -> None:
        """Count a piece of the request's target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count one header, and pass it on as Ray can read it. A trailer comes when the app has the headers already; of
        the connection it says nothing, or the parser would take it for the last request and drop the next."""
        self._count(len(name) + len(value) + 4)
        if not self._in_head:
            if name.lower() in _OF_THE_CONNECTION:
                raise ValueError("a trailer says nothing of the connection")
            return
        if name.lower() == b"x-request-id" and not is_request_id(value.decode("latin-1")):
            return
        super().on_header(name, value if value.isascii() else _write_utf8(value))

    def on_headers_complete(self) -> None:
        """End the head's time: it is there."""
        if self.parser.get_method() == b"CONNECT":
            raise ValueError("no tunnels")
        self._stop_head_clock()
        ListenerProtocol._waiting.pop(self, None)
        self._in_head, self._open_bytes, self._head_bytes = False, 0, 0
        if not self._ignores_upgrade():
            super().on_headers_complete()
            if self.cycle is not None:
                self.cycle.transport = cast(asyncio.Transport, _ClosedSoftly(self.transport, self))

    def close_softly(self) -> None:
        """Close behind an answer. Where the client still sends its body, the answer's end is told first: closed at
        once, the connection would be reset, and the answer lost with it."""
        if self.cycle is None or not self.cycle.more_body or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._over = True
        self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.close)

    def on_body(self, body: bytes) -> None:
        """Pass a piece of a body on."""
        self._open_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Tell the app that its body is whole; an upgrade that is ignored is no message yet."""
        self._open_bytes = 0
        if not self._ignores_upgrade():
            super().on_message_complete()

    def _start_head_clock(self) -> None:
        if self._head_clock is None:
            self._head_clock = self.loop.call_later(self._header_s, self._end_late_head)

    def _stop_head_clock(self) -> None:
        if self._head_clock is not None:
            self._head_clock.cancel()
            self._head_clock = None

    def _end_late_head(self) -> None:
        self._head_clock = None
        if self.cycle is not None and self.cycle.more_body:
            self.transport.abort()
        elif self._head_bytes or self._open_bytes or self.cycle is not None:
            self._refuse(ApiError("request_timeout", SLOW))
        else:
            self.transport.close()  # opened ahead, and never used

    def _refuse(self, error: ApiError) -> None:
        if self._refused is not None or self.transport.is_closing():
            return
        self._refused = error
        self._stop_head_clock()
        self._unset_keepalive_if_required()
        if self.cycle is not None and not (self._in_head and self.cycle.response_complete):
            if self.pipeline or self.cycle.response_started or not self.cycle.more_body:
                self.transport.close()  # an answer is under way, or has left
                return
            self.cycle.disconnected = True  # the app that waits for the body says no more
            self.cycle.message_event.set()
        self.flow.resume_reading()
        self.transport.write(_render_error(error))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.abort)

    def pause_writing(self) -> None:
        """Watch what isn't taken: more has been written than the client reads. Those that take slowest make room for
        others."""
        super().pause_writing()
        self._watch_unread()
        self._begin_pace()
        self.loop.call_soon(self._begin_pace)  # what the kernel takes at once, the client hasn't taken
        ListenerProtocol._untaken[self] = None
        over = sum(one.transport.get_write_buffer_size() for one in ListenerProtocol._untaken) - _UNREAD_BYTES_MAX
        for one in sorted(ListenerProtocol._untaken, key=ListenerProtocol._find_pace) if over > 0 else ():
            over -= one.transport.get_write_buffer_size()
            one.transport.abort()
            if over <= 0:
                break

    def _begin_pace(self) -> None:
        self._paused_bytes, self._paused_s = self._unread(), self.loop.time()
        self._moved_s = self._paused_s

    def _find_pace(self) -> float:
        """Find how many bytes a second the client takes, with a few more for one that has just begun."""
        taken_bytes = _FIRST_BYTES + self._paused_bytes - self._unread()
        return taken_bytes / (self.loop.time() - self._paused_s + _FIRST_S)

    def resume_writing(self) -> None:
        """Note that the client reads."""
        super().resume_writing()
        ListenerProtocol._untaken.pop(self, None)

    def on_response_complete(self) -> None:
        """Bound the wait for the last bytes to be taken, or for the next head."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_unread()
        elif self.cycle is not None and self.cycle.response_complete:
            self._wait()
            if self.cycle.more_body:
                # Answered before its body was there. What still comes is thrown away, but not for ever.
                self._start_head_clock()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, and bound the wait for its last bytes to be taken."""
        super().timeout_keep_alive_handler()
        self._watch_unread()

    def _watch_unread(self) -> None:
        if self._unread_clock is None and self._unread():
            self._left_bytes, self._moved_s = self._unread(), self.loop.time()
            self._unread_clock = self.loop.call_later(self._unread_s / _LOOKS, self._check_unread)

    def _check_unread(self) -> None:
        self._unread_clock = None
        left_bytes = self._unread()
        if not left_bytes or not (self.flow.write_paused or self.transport.is_closing()):
            return
        if left_bytes < self._left_bytes:
            self._moved_s = self.loop.time()
        elif self.loop.time() - self._moved_s >= self._unread_s:
            self.transport.abort()
            return
        self._left_bytes = left_bytes
        self._unread_clock = self.loop.call_later(self._unread_s / _LOOKS, self._check_unread)

    def _unread(self) -> int:
        return int(self.transport.get_write_buffer_size()) + _count_queued_bytes(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop every clock, also uvicorn's for an idle connection, which it leaves running after a reset."""
        self._stop_head_clock()
        self._unset_keepalive_if_required()
        ListenerProtocol._waiting.pop(self, None)
        ListenerProtocol._untaken.pop(self, None)
        if self._unread_clock is not None:
            self._unread_clock.cancel()
            self._unread_clock = None
        super().connection_lost(exc)


class _ClosedSoftly:
    """The transport of one answer, which uvicorn closes behind it."""

    def __init__(self, transport: asyncio.Transport, protocol: ListenerProtocol) -> None:
        self._transport, self.close = transport, protocol.close_softly

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _count_queued_bytes(transport: asyncio.Transport) -> int:
    """Count the bytes in the kernel's queue; 0 where it doesn't report them."""
    peer = transport.get_extra_info("socket")
    with contextlib.suppress(OSError, ValueError):  # it may be closed
        if peer is not None and sys.platform == "darwin":
            return int(peer.getsockopt(socket.SOL_SOCKET, _SO_NWRITE))
        if peer is not None:
            return int(struct.unpack("i", fcntl.ioctl(peer.fileno(), _UNREAD_QUEUE, b"\0\0\0\0"))[0])
    return 0


def _write_utf8(value: bytes) -> bytes:
    try:
        value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1").encode()
    return value


def _render_error(error: ApiError) -> bytes:
    body = orjson.dumps(error.body())
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | error.headers()).items())
    return STATUS_LINE[error.status] + lines.encode("ascii") + b"\r\n" + body
