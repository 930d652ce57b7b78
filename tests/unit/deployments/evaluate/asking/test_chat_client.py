"""The client: what it reads of an answer, of this server's report, of a stream, and of what goes wrong."""

from __future__ import annotations

import pytest

from deployments.evaluate.asking.chat_client import ChatClient, ChatReply, Timing
from deployments.evaluate.asking.speed_run import measure_cache, measure_length, measure_together, warm_up, write_prompt
from tests.support.played_model import PlayedServer, call, say

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def server():
    with PlayedServer({"m": lambda body: call("f", a=1)}) as played:
        yield played


def ask(server: PlayedServer, key: str = "", **fields: object) -> ChatReply:
    client = ChatClient(server.url + "/v1", key=key)
    try:
        return client.ask(BODY | fields, session="s", within_s=20)
    finally:
        client.close()


def test_an_answer_is_read_whole(server):
    """Calls, tokens and time; a server without reports has no attempts to show."""
    reply = ask(server)

    assert (reply.calls, reply.error, reply.attempts) == ([("f", '{"a": 1}')], "", None)
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens, reply.tokens) == (40, 4, 8, 44)
    assert reply.seconds > 0


def test_nothing_leaves_the_machine_and_the_key_goes_as_a_header(server):
    """Each request is marked local-only, and named by its session."""
    ask(server, key="sk-1")
    headers = {name.lower(): value for name, value in server.asked[0][1].items()}

    assert headers["x-mlx-stack-local-only"] == "true"
    assert headers["x-mlx-stack-session"] == "s"
    assert headers["authorization"] == "Bearer sk-1"


@pytest.mark.parametrize("session", ["case 7 of m", " m ", "place to ", "modèle\n", "\ud800", "%"])
def test_a_session_may_have_any_letter(server, session):
    """A header takes no space at its ends, no line break and few letters: what it doesn't take is percent-encoded."""
    client = ChatClient(server.url)

    assert not client.stream(BODY, session=session, within_s=5).error
    assert not client.ask(BODY, session=session, within_s=5).error


@pytest.mark.parametrize("mark", range(14))
def test_a_prompt_of_any_mark_is_asked(server, mark):
    """Which words it begins with is chance, and so was where the name of its session ended."""
    result = measure_length(ChatClient(server.url), "m", 1024, 11_431_024 + mark, within_s=5)

    assert result is not None
    assert not result["error"]


@pytest.mark.parametrize(
    ("status", "code", "late"),
    [(400, "invalid_answer", False), (504, "timeout", False), (504, "deadline_exceeded", True), (504, "gone", True)],
)
def test_an_error_says_why_and_whether_it_was_our_deadline(status, code, late):
    """A refusal is a result, and so is a tier that meets its own timeouts; our deadline is none."""
    error = {"error": {"message": "why", "code": code}}
    with PlayedServer({"m": lambda body: (status, error)}) as server:
        reply = ask(server)

    assert reply.error == f"{status} {code}: why"
    assert (reply.late, reply.calls, reply.text) == (late, [], "")


def test_nobody_there_is_an_error_and_no_exception():
    """A server that has gone is said in words."""
    with PlayedServer({}) as server:
        url = server.url
    client = ChatClient(url)

    reply = client.ask(BODY, session="s", within_s=5)
    assert "nobody answers" in reply.error
    assert reply.late  # it says nothing of the model
    assert client.stream(BODY, session="s", within_s=5).error
    assert client.get("/ready") is None
    assert client.models() == []


def test_a_stream_is_timed():
    """The first piece, the last one, and the usage at the end."""
    with PlayedServer({"m": lambda body: say("one two three")}) as server:
        timing = ChatClient(server.url).stream(BODY, session="s", within_s=20)

    assert timing.first_s is not None
    assert timing.first_s <= timing.total_s
    assert (timing.prompt_tokens, timing.completion_tokens, timing.cached_tokens, timing.error) == (40, 4, 8, "")


def test_a_stream_that_brings_nothing_is_an_error():
    """An error in place of a stream is said."""
    with PlayedServer({"m": lambda body: (503, {"error": {"message": "asleep"}})}) as server:
        assert ChatClient(server.url).stream(BODY, session="s", within_s=20).error == "503: asleep"


def test_a_pace_needs_two_tokens():
    """One token has no pace."""
    assert Timing(first_s=1.0, total_s=3.0, completion_tokens=5).tokens_s == 2.0
    assert Timing(first_s=1.0, total_s=3.0, completion_tokens=1).tokens_s is None
    assert Timing(first_s=None, total_s=3.0, completion_tokens=9).tokens_s is None


def test_speeds_are_measured_by_length_by_cache_and_together():
    """Each measurement names its tokens and times, and counts what failed."""
    with PlayedServer({"m": lambda body: say("one two three")}) as server:
        client = ChatClient(server.url)
        assert warm_up(client, "m", within_s=20)["error"] == ""
        length = measure_length(client, "m", 64, 7, within_s=20)
        cache = measure_cache(client, "m", 7, within_s=20)
        together = measure_together(client, "m", 4, 7, within_s=20)

    assert length is not None
    assert cache is not None
    assert together is not None
    assert length["first_s"] >= 0
    assert cache["again"]["cached_tokens"] == 8
    assert together["failed"] == 0
    assert together["tokens_s"] > 0


def test_no_two_prompts_begin_alike():
    """A cache finds nothing of one prompt in another one."""
    prompts = [write_prompt(64, mark) for mark in range(50)]

    assert len({prompt.split()[0] for prompt in prompts}) == 50
