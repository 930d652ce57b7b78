"""The direct door: what it says to rubbish, and whom it lets go to make room."""

import asyncio
import socket
import struct
from typing import Any

import pytest
import uvicorn
from hypothesis import example, given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from deployments.listener import direct as direct_door
from deployments.listener.listening import is_request_id
from tests.support.listeners import Back, Raw, ask, behind_uvicorn
from tests.support.serving import until
from tests.unit.deployments.listener.test_slow_clients import BOUND_S


def test_a_head_without_end_is_refused_in_words(monkeypatch):
    """A header that never ends is not kept: at the direct door nothing else bounds it."""
    with behind_uvicorn(Back(), monkeypatch, header_s=20) as door:
        client = Raw(door.port).send("GET /quick HTTP/1.1\r\nhost: x\r\ncookie: ")
        answer = client.dribble("c" * 8192, BOUND_S)

    assert (answer.status, answer.error["code"]) == (431, "headers_too_large")


RUBBISH = [
    "\x16\x03\x01\x02\x00\x01",
    "GET / HTTP/1.1\r\nho\x7fst: x\r\n\r\n",
    "GET / HTTP/9\r\n\r\n",
    "\r\n\r\nNONSENSE\r\n\r\n",
]


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_what_is_no_http_is_refused_in_words(monkeypatch, rubbish):
    """A 400 in OpenAI's shape. (HAProxy's own page for it can't be changed.)"""
    with behind_uvicorn(Back(), monkeypatch) as door:
        answer = Raw(door.port).send(rubbish).rest(BOUND_S)

    assert (answer.status, answer.error["code"]) == (400, "invalid_request")
    assert not answer.reset


def test_no_error_is_written_into_an_answer(monkeypatch):
    """Rubbish behind a request whose answer is under way ends the connection, and stands nowhere in that answer."""
    with behind_uvicorn(Back(), monkeypatch) as door:
        client = Raw(door.port).send("GET /stream?pause_s=0.01 HTTP/1.1\r\nhost: x\r\n\r\n")
        first = client.some(100)
        answer = client.send("NONSENSE\r\n\r\n").rest(BOUND_S)

        assert first.startswith(b"HTTP/1.1 200")
        assert b"error" not in answer.raw
        until(lambda: door.ended == ["stream"], "the stream ends")


def test_heads_that_dribble_leave_room(monkeypatch):
    """At the direct door those that have waited longest for a head make room; whoever has sent one stays."""
    monkeypatch.setattr(direct_door, "_WAITING_MAX", 20)
    with behind_uvicorn(Back(), monkeypatch, header_s=60) as door:
        stream = Raw(door.port).send("GET /stream?pause_s=0.05 HTTP/1.1\r\nhost: x\r\n\r\n")
        assert stream.some(100)
        crowd = [Raw(door.port).send("GET /qui") for _ in range(100)]
        until(lambda: sum(client.open for client in crowd) <= 20, "the oldest are closed")

        assert all(ask(door.port).status == 200 for _ in range(50))
        assert stream.some(100)
        assert door.ended == []
        for client in (stream, *crowd):
            client.close()


@pytest.mark.parametrize("reset", [False, True])
def test_no_clock_outlives_its_connection(reset):
    """Closed or reset after an answer, while it is kept for the next request: nothing looks at its socket later."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def play() -> list[asyncio.TimerHandle | None]:
        loop = asyncio.get_running_loop()
        config, lost = uvicorn.Config(answer, log_config=None), loop.create_future()
        config.load()

        class Watched(direct_door.ListenerProtocol):
            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                lost.set_result([self.timeout_keep_alive_task, self._head_clock, self._unread_clock])

        server = await loop.create_server(lambda: Watched(config, ServerState(), {}), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            if reset:
                peer = writer.get_extra_info("socket")
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()
            return list(await lost)

    assert asyncio.run(play()) == [None, None, None]


@given(st.binary(min_size=1, max_size=150))
@example(b"caf\xe9")
@example(b"\xc2\x9b5m")
@example(b"r" * 129)
def test_every_header_can_be_read_as_utf_8(value: bytes) -> None:
    """Law: whatever bytes a header has, Ray can read it, and a good one is as it came. A request's id is a word of one
    line, or none."""
    seen = read_headers([(b"X-Session-Id", value), (b"X-Request-ID", value)])
    text = value.decode("latin-1")

    assert seen[b"x-session-id"].decode() in (value.decode("utf-8", "replace"), text)
    assert seen.get(b"x-request-id") == (value if is_request_id(text) else None)


def read_headers(sent: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers of a request as the app behind the door has them."""

    async def play() -> dict[bytes, bytes]:
        config = uvicorn.Config(lambda *_: None, log_config=None)
        config.load()
        door = direct_door.ListenerProtocol(config, ServerState(), {})
        door.headers = []
        for name, value in sent:
            door.on_header(name, value)
        return dict(door.headers)

    return asyncio.run(play())
