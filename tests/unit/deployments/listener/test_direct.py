"""The direct door: what it says to rubbish, and whom it lets go to make room."""

import asyncio
import socket
import struct
from itertools import accumulate, pairwise
from typing import Any
from unittest.mock import Mock

import pytest
import uvicorn
from hypothesis import example, given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from deployments.listener import direct as direct_door
from deployments.listener.haproxy import HEADER_BYTES_MAX
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


@pytest.mark.parametrize("begin", ["0\r\nx: ", "0\r\n", "1;x="])
def test_a_trailer_without_end_is_refused_in_words(monkeypatch, begin):
    """Neither is what stands behind a body or in a chunk's head, whether it is one line or many."""
    with behind_uvicorn(Back(body_s=20), monkeypatch) as door:
        client = Raw(door.port).send(f"POST /read HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{begin}")
        answer = client.dribble("x: y\r\n" * 1000 if begin.endswith("\n") else "c" * 8192, BOUND_S)

    assert (answer.status, answer.error["code"]) == (431, "headers_too_large")


@given(st.lists(st.integers(1, 30_000), max_size=9), st.integers(1, 50), st.booleans())
def test_a_head_counts_once_however_it_is_cut(cuts, lines, kept):
    """Law: 60 KB of headers are taken in any pieces, behind another request too, and a trailer is no header."""
    cookies = "".join(f"cookie: {'c' * (60_000 // lines)}\r\n" for _ in range(lines))
    head = f"POST /a HTTP/1.1\r\nhost: x\r\n{cookies}transfer-encoding: chunked\r\n\r\n"
    stream = f"{head}1\r\na\r\n0\r\ntrailer: x\r\n\r\n".encode() * (1 + kept)
    ends = [0, *accumulate(cuts), len(stream)]

    requests = read_requests(*(stream[begin:end] for begin, end in pairwise(ends)))
    assert [body for _, _, body in requests] == [b"a"] * (1 + kept)


@given(st.integers(-9, 9), st.integers(1, 50_000), st.integers(1, 50), st.lists(st.integers(1, 30_000), max_size=9))
@example(0, 30_000, 1, [30_000, 9])
@example(1, 30_000, 1, [])
def test_the_bound_of_a_head_is_exact_however_it_is_cut(beyond, url, lines, cuts):
    """Law: a target and headers of 64 KiB are taken and a byte more is refused, in one piece or in many."""
    size = (HEADER_BYTES_MAX - url - len("host: x\r\n") + beyond) // lines - len("c: \r\n")
    count = url + len("host: x\r\n") + lines * (size + len("c: \r\n"))
    head = f"GET /{'u' * (url - 1)} HTTP/1.1\r\nhost: x\r\n".encode() + b"c: %b\r\n" % (b"v" * size) * lines + b"\r\n"
    ends = [0, *accumulate(cuts), len(head)]

    for parts in ([head], [head[begin:end] for begin, end in pairwise(ends)]):
        assert len(read_requests(*parts)) == (count <= HEADER_BYTES_MAX)


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


NEXT = b"GET /quick HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
JAVA = "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\nUpgrade: h2c\r\n"
UPGRADES = {
    "java": JAVA,
    "unknown": "Connection: upgrade\r\nUpgrade: foo\r\n",
    "a list": "Upgrade: websocket, foo/2\r\nConnection: keep-alive\r\nConnection: Upgrade\r\n",
    "twice": "UPGRADE: h2c\r\nConnection: Upgrade\r\nUpgrade: foo\r\n",
}


@pytest.mark.parametrize("upgrade", UPGRADES.values(), ids=UPGRADES)
@pytest.mark.parametrize("chunked", [False, True])
def test_an_upgrade_that_nobody_speaks_is_ignored(upgrade, chunked):
    """Law (RFC 9110, 7.8): the request is answered as without it, wherever its bytes are cut: its body is its body,
    even where it looks like a request, and what comes behind it is the next request. Java sends `h2c` by default."""
    inner = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner) if chunked else inner
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(inner)}"
    head = f"POST /outer?a=%20 HTTP/1.1\r\n{upgrade}{framing}\r\nHost: caf\xe9\r\n\r\n".encode("latin-1")
    sent, wanted = head + body + NEXT, [("POST", b"/outer?a=%20", inner), ("GET", b"/quick?", b"")]

    for cut in range(len(sent)):
        assert read_requests(sent[:cut], sent[cut:]) == wanted, cut
    assert read_requests(*(sent[at : at + 1] for at in range(len(sent)))) == wanted
    assert len(read_requests((head + body) * 300)) == 300


def read_requests(*parts: bytes) -> list[tuple[str, bytes, bytes]]:
    """The requests as an app sees them that is sent these parts on one connection."""
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            more = message.get("more_body", False)
            body += message.get("body", b"")
        names = [name for name, _ in scope["headers"]]
        assert b"upgrade" not in names
        assert names.count(b"host") == 1
        assert b"trailer" not in names
        seen.append((scope["method"], b"?".join((scope["raw_path"], scope["query_string"])), body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def play() -> None:
        config = uvicorn.Config(app, log_config=None)
        config.load()
        state = ServerState()
        door = direct_door.ListenerProtocol(config, state, {})
        wire = Mock(spec=asyncio.Transport)
        wire.is_closing.return_value, wire.get_write_buffer_size.return_value = False, 0
        wire.get_extra_info.return_value = None
        door.connection_made(wire)
        for part in parts:
            door.data_received(part)
        while state.tasks:
            await asyncio.gather(*state.tasks)
        door.connection_lost(None)

    asyncio.run(play())
    return seen


REFUSED = {
    "connect": "CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\nGET /quick HTTP/1.1\r\nhost: x\r\n\r\n",
    "unknown coding": "POST /read HTTP/1.1\r\nhost: x\r\ntransfer-encoding: xchunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "broken chunk": "POST /read HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n",
    "broken size": "POST /read HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("begun", [False, True])
def test_a_body_that_cannot_be_read_is_refused_in_words(monkeypatch, sent, begun):
    """A 400 in OpenAI's shape and the end of the connection, also where the app waits for the body already."""
    back = Back()
    with behind_uvicorn(back, monkeypatch) as door:
        client = Raw(door.port)
        head, end, body = sent.partition("\r\n\r\n")
        client.send(head + end)
        if begun and "chunked\r" in head + end:
            until(lambda: back.reading or "xchunked" in head, "the app waits for the body")
        answer = client.send(body).rest(BOUND_S)

    assert (answer.status, answer.error["code"], answer.reset) == (400, "invalid_request", False)
    assert answer.raw.count(b"HTTP/1.1") == 1


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


def test_answers_that_nobody_takes_leave_room(monkeypatch):
    """What waits for its clients has a bound over all of them: those that take slowest make room, and one that
    reads stays."""
    monkeypatch.setattr(direct_door, "_UNREAD_BYTES_MAX", 500_000)
    with behind_uvicorn(Back(), monkeypatch, unread_s=60) as door:
        reader = Raw(door.port).send("GET /stream?pause_s=0.01 HTTP/1.1\r\nhost: x\r\n\r\n")
        assert reader.some(100)
        crowd = [Raw(door.port, buffer_bytes=4096).send("GET /stream HTTP/1.1\r\nhost: x\r\n\r\n") for _ in range(30)]
        until(lambda: door.streams == 31 and len(door.ended) > 20, "the oldest are ended")

        assert reader.some(100)
        assert len(door.ended) < 30
        for client in (reader, *crowd):
            client.close()


def test_a_slow_reader_outlives_those_that_take_nothing(monkeypatch):
    """Law: those that take slowest make room, and not one that reads, however long its answer has waited."""
    monkeypatch.setattr(direct_door, "_UNREAD_BYTES_MAX", 4_000_000)
    with behind_uvicorn(Back(), monkeypatch, unread_s=60) as door:
        large = "GET /large?bytes=1500000 HTTP/1.1\r\nhost: x\r\n\r\n"
        slow = Raw(door.port, buffer_bytes=4096).send(large)
        got, crowd = len(slow.some(50_000)), []
        for _ in range(20):
            crowd.append(Raw(door.port, buffer_bytes=4096).send(large))
            assert crowd[-1].peer.recv(1, socket.MSG_PEEK)  # its answer waits
            for _ in range(10):
                got += len(slow.some(10_000))
        while got < 1_500_000 and (part := slow.some(65_536)):
            got += len(part)
        assert got > 1_500_000
        for client in (slow, *crowd):
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
