"""Clients that are slow, send rubbish, or come in crowds: over real sockets, at both doors.

The bounds are made small (`tests/support/listeners.py`): a head has 1 s, a body 0.6 s and its rate, an answer
that nobody takes 1 s.
"""

import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployments.api import body
from deployments.listener.haproxy import HEADER_BYTES_MAX
from tests.support.listeners import Back, Raw, ask, behind_haproxy, behind_uvicorn
from tests.support.serving import until

HAPROXY_ONLY = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="HAProxy's package is for Linux")
DOORS = [pytest.param("direct"), pytest.param("haproxy", marks=HAPROXY_ONLY)]
BOUND_S = 15.0
POST = "POST /read HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture(scope="module", params=DOORS)
def opened(request) -> Iterator[Back]:
    back = Back()
    with pytest.MonkeyPatch.context() as monkeypatch, tempfile.TemporaryDirectory(prefix="ms-") as path:
        if request.param == "direct":
            with behind_uvicorn(back, monkeypatch):
                yield back
        else:
            with behind_haproxy(back, Path(path), monkeypatch):
                yield back


@pytest.fixture
def door(opened) -> Back:
    until(lambda: len(opened.ended) == opened.streams, "the streams of the test before have ended")
    opened.streams = 0
    opened.ended.clear()
    return opened


# -- slow ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["GET /quick", "GET /quick HTTP/1.1\r\nhost: x\r\ncookie: "])
def test_a_head_that_dribbles_is_ended(door, head):
    """However steadily its bytes come, a head has its time, and the client is told."""
    answer = Raw(door.port).send(head).dribble("a", BOUND_S)

    assert answer.status == 408
    assert not answer.reset
    assert 0.9 < answer.elapsed_s < BOUND_S


def test_a_connection_that_asks_nothing_is_closed(door):
    """Without a word: browsers open connections ahead, and would take an answer for that to their next request."""
    answer = Raw(door.port).rest(BOUND_S)

    assert (answer.raw, answer.reset) == (b"", False)


@pytest.mark.parametrize("framing", ["content-length: 1000000\r\n\r\n", "transfer-encoding: chunked\r\n\r\n"])
def test_a_body_that_dribbles_is_ended(door, framing):
    """One chunk after the other, or byte after byte: a 408 in OpenAI's shape, and the connection is closed."""
    piece = "1\r\na\r\n" if "chunked" in framing else "a"
    answer = Raw(door.port).send(POST + framing).dribble(piece, BOUND_S)

    assert (answer.status, answer.error["code"]) == (408, "request_timeout")
    assert not answer.reset


def test_a_large_body_that_stops_is_ended(door):
    """Also what is beyond HAProxy's buffer, and came well at first."""
    answer = Raw(door.port).send(POST + "content-length: 1000000\r\n\r\n", b"a" * 300_000).rest(BOUND_S)

    assert (answer.status, answer.error["code"]) == (408, "request_timeout")


@pytest.mark.parametrize("trailer", ["connection: close", "Proxy-Connection: Close", "connection: upgrade", "x: y"])
@pytest.mark.parametrize("path", ["/read", "/nothing"])
def test_a_trailer_says_nothing_of_the_connection(door, trailer, path):
    """Law: whatever stands behind a body, the next request is answered or the connection ends; it is never dropped.
    HAProxy sends the requests of all clients over the same connections: one trailer cost another client its answer."""
    client = Raw(door.port).send(f"POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    client.send(f"1\r\na\r\n0\r\n{trailer}\r\n\r\n")
    first = client.some(65_536)  # or a part of it
    assert [ask(door.port).status for _ in range(3)] == [200] * 3
    rest = client.send("GET /quick HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").rest(BOUND_S)
    status, *others = re.findall(rb"HTTP/1.1 (\d)", first + rest.raw)

    assert status == (b"2" if (trailer, path) == ("x: y", "/read") else b"4")
    assert others in (([b"2"],) if trailer == "x: y" else ([], [b"2"]))


def test_a_body_that_goes_on_after_its_answer_is_ended(door):
    """Answered at once with a 404, the client dribbles on: neither its answer nor its connection is kept for it."""
    client = Raw(door.port).send("POST /none HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n", b"a" * 200_000)
    assert client.some(65536).startswith(b"HTTP/1.1 404")

    client.dribble("a", BOUND_S)


def test_a_large_body_that_comes_steadily_is_read(door):
    """Longer than `body_s` in all, but at a rate that an agent on a slow line has: it is read to its end."""
    client = Raw(door.port).send(POST + "connection: close\r\ncontent-length: 400000\r\n\r\n")
    began_s = time.monotonic()
    for _ in range(10):
        assert client.open
        client.send(b"a" * 40_000)
        paced(0.15)

    assert client.rest().raw.endswith(b"400000 bytes")
    assert time.monotonic() - began_s > door.body_s


def test_an_answer_that_nobody_reads_is_ended(door):
    """The client holds its connection and takes nothing: the app's stream ends."""
    client = Raw(door.port, buffer_bytes=4096).send("GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
    until(lambda: door.streams == 1, "the stream has begun")

    until(lambda: door.ended == ["stream"], "the stream is ended", wait_s=BOUND_S)
    client.close()


def test_an_answer_that_is_read_slowly_is_not_ended(door):
    """For three times the bound, 20 kB/s of a stream that could give megabytes."""
    client = Raw(door.port, buffer_bytes=4096).send("GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
    end_s = time.monotonic() + 3.0
    while time.monotonic() < end_s:
        assert client.some(2000)
        paced(0.1)

    assert door.ended == []
    client.close()
    until(lambda: door.ended == ["stream"], "the stream ends with its client")


def test_a_quiet_answer_is_not_ended(door):
    """A tier that thinks for longer than all of these bounds is waited for."""
    client = Raw(door.port).send("GET /stream?pause_s=1.5 HTTP/1.1\r\nhost: x\r\n\r\n")
    got = b""
    while got.count(b"data: ") < 2:
        part = client.some(65536)
        assert part
        got += part

    assert time.monotonic() - client.begun_s > 1.4
    client.close()


def test_a_kept_connection_may_rest(door):
    """Between two requests a connection may rest for longer than a head may take; the next head has its own time."""
    client = Raw(door.port).send("GET /quick HTTP/1.1\r\nhost: x\r\n\r\n")
    client.through(b"quick")
    paced(1.5)
    client.send("GET /quick HTTP/1.1\r\nhost: x\r\n\r\n")
    client.through(b"quick")

    assert client.send("GET /quick").dribble("a", BOUND_S).status in (0, 408)


# -- large, and no HTTP --------------------------------------------------------------------------------------------


def test_a_large_cookie_is_taken(door):
    """60 KB: as large as browsers send."""
    assert ask(door.port, "/quick", "cookie: " + "c" * 60_000).raw.endswith(b"quick")


@pytest.mark.parametrize("size", [HEADER_BYTES_MAX + 2000, 90_000])
@pytest.mark.parametrize("lines", [1, 50])
def test_headers_that_are_too_large_are_refused_in_words(door, size, lines):
    """A 431 that says what to do, and no reset that hides it."""
    headers = [f"cookie-{i}: " + "c" * (size // lines) for i in range(lines)]
    answer = ask(door.port, "/quick", *headers)

    assert (answer.status, answer.error["code"]) == (431, "headers_too_large")
    assert not answer.reset


# -- crowds --------------------------------------------------------------------------------------------------------


def test_bodies_that_dribble_leave_room(monkeypatch):
    """Where as many bodies come as may at once, the next one ends the slowest that isn't young any more, and is read;
    one that came first, and comes well, stays."""
    monkeypatch.setattr(body, "YOUNG_S", 0.0)
    with behind_uvicorn(Back(body_s=60, readers_max=8), monkeypatch) as door:
        large = Raw(door.port).send(POST + "connection: close\r\ncontent-length: 4000000\r\n\r\n", b"a" * 2_000_000)
        slow = [Raw(door.port).send(POST + "content-length: 9\r\n\r\na") for _ in range(7)]
        until(lambda: door.reading == 8, "all are being read")
        good = Raw(door.port).send(POST + "connection: close\r\ncontent-length: 3\r\n\r\nabc").rest()

        assert good.raw.endswith(b"3 bytes")
        until(lambda: sum(not client.open for client in slow) == 1, "one of them is ended")
        assert large.open
        assert large.send(b"a" * 2_000_000).rest().raw.endswith(b"4000000 bytes")
        for client in slow:
            client.close()


def test_a_crowd_of_slow_clients_stops_nobody(door):
    """Hundreds that dribble heads, bodies and chunks: a bystander of the same address is served throughout, and none of
    them is there after their time."""
    begins = ["GET /quick HT", POST + "content-length: 9999\r\n\r\n", POST + "transfer-encoding: chunked\r\n\r\n"]
    crowd = [Raw(door.port).send(begins[i % 3]) for i in range(300)]
    waits = []
    while any(client.open for client in crowd):
        begun_s = time.monotonic()
        assert ask(door.port).status == 200
        waits.append(time.monotonic() - begun_s)
        assert time.monotonic() - crowd[0].begun_s < BOUND_S
    for client in crowd:
        client.close()

    assert len(waits) > 10
    assert max(waits) < 1.0


def paced(wait_s: float) -> None:
    """A client's own pace: what a slow client is made of."""
    end_s = time.monotonic() + wait_s
    while time.monotonic() < end_s:
        time.sleep(0.01)
