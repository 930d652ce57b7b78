"""The client: what it reads of an answer, of this server's report, of a stream, and of servers that send anything."""

import gzip
import json
import socket
import threading
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from deployments.evaluate.asking import chat_client
from deployments.evaluate.asking.chat_client import ChatClient, ChatReply
from tests.support.played_model import PlayedServer, call

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def ask_both(url: str, *, key: str = "", session: str = "s", within_s: float = 5) -> tuple[ChatReply, ChatReply]:
    """Ask for a whole answer, and for a stream."""
    with closing(ChatClient(url, key=key)) as client:
        reply = client.ask(BODY, session=session, within_s=within_s)
        return reply, client.stream(BODY, session=session, within_s=within_s)


@contextmanager
def serve_bytes(*pieces: bytes, pause_s: float = 0.0, endless: bool = False) -> Iterator[str]:
    """Answer every connection with these bytes, however they are asked; `endless` sends the last piece for ever."""
    ended = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            connection.recv(65_536)
            try:
                for piece in pieces:
                    connection.sendall(piece)
                while endless and not ended.wait(pause_s):
                    connection.sendall(pieces[-1])
            except OSError:
                return

    def run() -> None:
        while not ended.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.close()


def write_answer(status: int, body: bytes, kind: bytes = b"application/json") -> bytes:
    head = b"HTTP/1.1 %d X\r\ncontent-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
    return head % (status, kind, len(body)) + body


def test_an_answer_is_read_whole_and_nothing_leaves_the_machine():
    """Calls, tokens and time, also of a stream; a server without reports has no attempts to show. Each request is
    marked local-only and named by its session, and the key goes as a header."""
    with PlayedServer({"m": lambda body: call("f", a=1)}) as server:
        reply, timing = ask_both(server.url + "/v1", key="sk-1")
        headers = {name.lower(): value for name, value in server.asked[0][1].items()}

    assert (reply.calls, reply.error, reply.attempts) == ([("f", '{"a": 1}')], "", None)
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens, reply.tokens) == (40, 4, 8, 44)
    assert reply.seconds > 0
    assert timing.first_s is not None
    assert timing.first_s <= timing.seconds
    assert (timing.prompt_tokens, timing.completion_tokens, timing.cached_tokens, timing.error) == (40, 4, 8, "")
    sent = [headers[name] for name in ("x-mlx-stack-local-only", "x-mlx-stack-session", "authorization")]
    assert sent == ["true", "s", "Bearer sk-1"]


@pytest.mark.parametrize(
    "session", ["case 7 of m", " m ", "place to ", "modèle\n", "\ud800", "%", "evaluate-модель-1", "a\nb: c"]
)
def test_a_session_may_have_any_letter(session):
    """A header takes no space at its ends, no line break and few letters: what it doesn't take is percent-encoded."""
    with PlayedServer({"m": lambda body: call("f", a=1)}) as server:
        assert [one.error for one in ask_both(server.url, session=session)] == ["", ""]


@pytest.mark.parametrize(
    ("status", "code", "late"),
    [
        *((400, "invalid_answer", False), (401, "key", False), (404, "model", False), (500, "server_error", False)),
        *((504, "timeout", False), (504, "deadline_exceeded", True), (504, "gone", True), (429, "busy", True)),
    ],
)
def test_an_error_says_why_and_whether_it_was_our_deadline(status, code, late):
    """A refusal is a result, and so is a tier that meets its own timeouts; our deadline is none, nor is a server that
    has no time now. As a stream the words are the same."""
    with serve_bytes(write_answer(status, json.dumps({"error": {"message": "why", "code": code}}).encode())) as url:
        reply, timing = ask_both(url)

    assert (reply.error, timing.error) == (f"{status} {code}: why", f"{status}: why")
    assert (reply.late, reply.calls, reply.text) == (late, [], "")


def test_nobody_there_is_an_error_and_no_exception():
    """A server that has gone is said in words, and says nothing of the model."""
    with PlayedServer({}) as server:
        url = server.url
    reply, timing = ask_both(url)

    assert "nobody answers" in reply.error
    assert reply.late
    assert timing.error
    assert ChatClient(url).get("/ready") is None
    assert ChatClient(url).models() == []


@pytest.mark.parametrize(("first_s", "tokens", "pace"), [(1.0, 5, 2.0), (1.0, 1, None), (None, 9, None)])
def test_a_pace_needs_two_tokens(first_s, tokens, pace):
    """One token has no pace."""
    assert ChatReply(first_s=first_s, seconds=3.0, completion_tokens=tokens).tokens_s == pace


ODD = [
    *([], "x", 1, None, {}, {"choices": {}}, {"choices": [1]}, {"choices": [{"message": 3}]}),
    {"choices": [{"message": {"tool_calls": "x", "content": ["y"]}}], "usage": [1]},
    {"choices": [{"message": {"tool_calls": [{"function": "f"}, 3, {}]}}], "usage": {"prompt_tokens": "many"}},
    {"error": "no"},
    {"error": {"message": "\ud800", "code": 3}},
    {"choices": [{"message": {"content": "\ud800", "tool_calls": [{"id": float("nan"), "index": float("inf")}]}}]},
    {"choices": [{"message": {}}], "usage": {"prompt_tokens": 10**400, "completion_tokens": -1}},
]


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("status", [200, 500])
def test_whatever_json_comes_nothing_is_raised(value, status):
    """As an answer, and as a stream; words can be written as UTF-8."""
    with serve_bytes(write_answer(status, json.dumps(value).encode())) as url:
        reply, timing = ask_both(url)

    json.dumps(dict(reply.message), allow_nan=False, ensure_ascii=False).encode()  # as an agent sends it back
    assert 0 <= timing.prompt_tokens < 1e10
    assert isinstance(reply.calls, list)
    assert isinstance(reply.text, str)
    assert reply.tokens >= 0
    assert timing.error.encode()
    assert bool(reply.error.encode()) or status == 200


def test_words_are_one_line_without_what_a_terminal_obeys_and_without_the_key():
    """Whatever a server sends in place of an answer; and a key that a refusal repeats is shown in no form of it."""
    with serve_bytes(write_answer(502, b"<html>\n\x1b[31m<script>no</script>\r\n</html>", b"text/html")) as url:
        reply, timing = ask_both(url)
    key = "sk-0123456789abcdef"
    with serve_bytes(write_answer(401, json.dumps({"error": {"message": f"{key} is no key"}}).encode())) as url:
        errors = [one.error for one in ask_both(url, key=key)]

    assert reply.error == "502: <html> [31m<script>no</script> </html>"
    assert timing.error.isprintable()
    assert errors == ["401: (key) is no key"] * 2


REPORTS = [
    *({}, {"attempts": 3}, {"attempts": [3]}, {"attempts": [{"tier": "a"}]}, {"attempts": [], "repairs": 7}),
    {"attempts": [], "tier": 4},
    {"attempts": [], "cost_usd": "free"},
]


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("name", ["1", "../x", "a\tb", "x" * 5000])
def test_a_report_of_another_form_is_none(report, name):
    """By whatever name it is to be found; the answer counts as that of a server without reports."""
    data = write_answer(200, json.dumps({"choices": [{"message": {"content": "x"}}]} | report).encode())
    data = data.replace(b"\r\n", f"\r\nx-mlx-stack-session: s\r\nx-request-id: {name}\r\n".encode(), 1)
    with serve_bytes(data) as url:
        reply, _ = ask_both(url)

    assert (reply.text, reply.attempts, reply.error) == ("x", None, "")


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize(("pieces", "pause_s"), [((HEAD, b" "), 0.05), ((b"",), 30.0)])
def test_an_answer_that_drips_or_never_comes_ends_at_its_deadline(monkeypatch, pieces, pause_s):
    """A byte now and then is no answer in time, and none is late: that is no answer of the model's."""
    monkeypatch.setattr(chat_client, "GRACE_S", 0.0)
    with serve_bytes(*pieces, pause_s=pause_s, endless=True) as url:
        began_s = time.monotonic()
        reply, timing = ask_both(url, within_s=0.4)

    assert reply.late
    assert timing.error
    assert time.monotonic() - began_s < 10


def test_an_answer_without_end_is_cut_and_garbage_is_no_stream(monkeypatch):
    """At the largest body that there may be; lines of anything, none of them a chunk."""
    monkeypatch.setattr(chat_client, "BODY_BYTES_MAX", 300_000)
    with serve_bytes(HEAD, b"x" * 65_536, endless=True) as url:
        found = ask_both(url, within_s=30)
    body = b'data: {\n\ndata: [1]\n\nevent: x\ndata: {"choices": [3, {"delta": 4}]}\n\n\xff\xfe\n' * 50
    with serve_bytes(write_answer(200, body, b"text/event-stream")) as url:
        _, timing = ask_both(url)

    assert all("more than 300000 bytes" in one.error for one in found)
    assert timing.first_s is None
    assert "nothing came" in timing.error


def test_a_compressed_answer_is_never_unpacked():
    """Law: the bound of a body holds in memory. No compressor is asked for, and an answer that is compressed all the
    same is an error: 273 bytes of it, compressed twice, are 64 MiB, and one read would unpack them."""
    bomb = zlib.compressobj(9, wbits=31)
    once = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(64)) + bomb.flush()
    twice = gzip.compress(once)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip, GZIP\r\ncontent-length: %d\r\n\r\n" % len(twice)
    tracemalloc.start()
    try:
        with serve_bytes(head + twice) as url:
            found = ask_both(url)
            obstacle = ChatClient(url).find_obstacle()
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    with PlayedServer({"m": lambda body: call("f", a=1)}) as server:
        ask_both(server.url)
        asked = [{name.lower(): value for name, value in headers.items()} for _, headers in server.asked]

    assert all("compresses its answer unasked" in words for words in (*(one.error for one in found), obstacle))
    assert most_bytes < 32 << 20
    assert {headers["accept-encoding"] for headers in asked} == {"identity"}


@pytest.mark.parametrize(("status", "body", "named", "words"), [
    (401, b"{}", ("m",), "401: it wants another key"), (404, b"<html>", (), "name one with --model"),
    (404, b"<html>", ("m",), ""), (200, b'{"data": [{"id": "a/b"}]}', (), ""), (200, b'{"data": [1, {}]}', ("m",), ""),
    (200, b"garbage", (), "no server with /v1/models"),
])  # fmt: skip
def test_what_is_in_the_way_is_said_before_anything_is_measured(status, body, named, words):
    """Without a list of models a named one is enough; without a key nothing is."""
    with serve_bytes(write_answer(status, body)) as url, closing(ChatClient(url, named=named)) as client:
        obstacle = client.find_obstacle()
        listed = client.models() if not obstacle else []

    assert words in obstacle
    assert bool(words) is bool(obstacle)
    assert [one["id"] for one in listed] == (list(named) or ["a/b"] if not obstacle else [])
