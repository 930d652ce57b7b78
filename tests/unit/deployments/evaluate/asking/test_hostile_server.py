"""Servers that send anything: each is an error in words and in time, and the evaluation goes on."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deployments.evaluate.asking import chat_client
from deployments.evaluate.asking.chat_client import ChatClient

BODY = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


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
        client = ChatClient(url)
        reply = client.ask(BODY, session="s", within_s=5)
        timing = client.stream(BODY, session="s", within_s=5)
        client.close()

    json.dumps(dict(reply.message), allow_nan=False, ensure_ascii=False).encode()  # as an agent sends it back
    assert 0 <= timing.prompt_tokens < 1e10
    assert isinstance(reply.calls, list)
    assert isinstance(reply.text, str)
    assert reply.tokens >= 0
    assert timing.error.encode()
    assert bool(reply.error.encode()) or status == 200


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_a_refusal_is_told_with_its_status(status):
    """Asked at once or as a stream. Who has no time now says nothing of the model: as one who is late."""
    with serve_bytes(write_answer(status, b'{"error": {"message": "not today"}}')) as url:
        client = ChatClient(url)
        reply = client.ask(BODY, session="s", within_s=5)
        timing = client.stream(BODY, session="s", within_s=5)
        client.close()

    for error in (reply.error, timing.error):
        assert str(status) in error
        assert "not today" in error
    assert reply.late is (status == 429)


def test_words_are_one_line_without_what_a_terminal_obeys():
    """Whatever a server sends in place of an answer."""
    with serve_bytes(write_answer(502, b"<html>\n\x1b[31m<script>no</script>\r\n</html>", b"text/html")) as url:
        client = ChatClient(url)
        errors = [client.ask(BODY, session="s", within_s=5).error, client.stream(BODY, session="s", within_s=5).error]
        client.close()

    assert errors[0] == "502: <html> [31m<script>no</script> </html>"
    assert all(error.isprintable() for error in errors)


def test_a_key_that_a_refusal_repeats_is_not_shown():
    """In no form of the answer."""
    key = "sk-0123456789abcdef"
    with serve_bytes(write_answer(401, json.dumps({"error": {"message": f"{key} is no key"}}).encode())) as url:
        client = ChatClient(url, key=key)
        errors = [client.ask(BODY, session="s", within_s=5).error, client.stream(BODY, session="s", within_s=5).error]
        client.close()

    assert [error.replace("(key)", "K") for error in errors] == ["401: K is no key", "401: K is no key"]


REPORTS = [
    *({}, {"attempts": 3}, {"attempts": [3]}, {"attempts": [{"tier": "a"}]}, {"attempts": [], "repairs": 7}),
    {"attempts": [], "tier": 4},
    {"attempts": [], "cost_usd": "free"},
]


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("name", ["1", "../x", "a\tb", "x" * 5000])
def test_a_report_of_another_form_is_none(report, name):
    """By whatever name it is to be found; the answer counts as that of a server without reports."""
    answer = {"choices": [{"message": {"content": "x"}}]} | report
    data = write_answer(200, json.dumps(answer).encode())
    data = data.replace(b"\r\n", f"\r\nx-mlx-stack-session: s\r\nx-request-id: {name}\r\n".encode(), 1)
    with serve_bytes(data) as url:
        client = ChatClient(url)
        reply = client.ask(BODY, session="s", within_s=5)
        client.close()

    assert (reply.text, reply.attempts, reply.error) == ("x", None, "")


@pytest.mark.parametrize("session", ["evaluate-модель-1", "a\nb: c", "\ud800"])
def test_a_session_may_have_the_name_of_any_model(session):
    """It is a header."""
    with serve_bytes(write_answer(200, b'{"choices": [{"message": {}}]}')) as url:
        client = ChatClient(url)
        reply = client.ask(BODY, session=session, within_s=5)
        client.close()

    assert not reply.error


def test_garbage_is_no_stream():
    """Lines of anything, none of them a chunk."""
    body = b'data: {\n\ndata: [1]\n\nevent: x\ndata: {"choices": [3, {"delta": 4}]}\n\n\xff\xfe\n' * 50
    with serve_bytes(write_answer(200, body, b"text/event-stream")) as url:
        client = ChatClient(url)
        timing = client.stream(BODY, session="s", within_s=5)
        client.close()

    assert timing.first_s is None
    assert "nothing came" in timing.error


@pytest.mark.parametrize("ask", ["ask", "stream"])
def test_an_answer_that_drips_ends_at_its_deadline(monkeypatch, ask):
    """A byte now and then is no answer in time."""
    monkeypatch.setattr(chat_client, "GRACE_S", 0.0)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    with serve_bytes(head, b" ", pause_s=0.05, endless=True) as url:
        client = ChatClient(url)
        began_s = time.monotonic()
        found = getattr(client, ask)(BODY, session="s", within_s=0.5)
        client.close()

    assert found.error
    assert time.monotonic() - began_s < 10


@pytest.mark.parametrize("ask", ["ask", "stream"])
def test_an_answer_without_end_is_cut(monkeypatch, ask):
    """At the largest body that there may be."""
    monkeypatch.setattr(chat_client, "BODY_BYTES_MAX", 300_000)
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    with serve_bytes(head, b"x" * 65_536, endless=True) as url:
        client = ChatClient(url)
        found = getattr(client, ask)(BODY, session="s", within_s=30)
        client.close()

    assert "more than 300000 bytes" in found.error


def test_who_says_nothing_is_late(monkeypatch):
    """And that is no answer of the model's."""
    monkeypatch.setattr(chat_client, "GRACE_S", 0.0)
    with serve_bytes(b"", pause_s=30, endless=True) as url:
        client = ChatClient(url)
        reply = client.ask(BODY, session="s", within_s=0.3)
        client.close()

    assert reply.late


@pytest.mark.parametrize(
    ("status", "body", "named", "words"),
    [
        (401, b"{}", ("m",), "401: it wants another key"),
        (404, b"<html>", (), "name one with --model"),
        (404, b"<html>", ("m",), ""),
        (200, b'{"data": [{"id": "a/b"}]}', (), ""),
        (200, b'{"data": [1, {}]}', ("m",), ""),
        (200, b"garbage", (), "no server with /v1/models"),
    ],
)
def test_what_is_in_the_way_is_said_before_anything_is_measured(status, body, named, words):
    """Without a list of models a named one is enough; without a key nothing is."""
    with serve_bytes(write_answer(status, body)) as url:
        client = ChatClient(url, named=named)
        obstacle = client.find_obstacle()
        listed = client.models() if not obstacle else []
        client.close()

    assert words in obstacle
    assert bool(words) is bool(obstacle)
    assert [one["id"] for one in listed] == (list(named) or ["a/b"] if not obstacle else [])
