"""The books after a death in the middle of a stream: whoever dies, they are within `FAR_TOKENS` of what left.

One client reads a long answer, a token a word, and in the middle of it somebody is killed with -9 (the Router, the
tier's replica, the state actor), or leaves (the client), or breaks off (the upstream). What the client has read is
counted, and its session's books are held against it once no call is open. In `make test` a Router and the state actor
die so in `test_on_ray`, a replica in `test_kills`.

    slow (scripted, local)      far (hosted, on a double of a provider, in the cloud)
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import pytest

from tests.support import scripts
from tests.support.client_load import PATIENT, Ledger, kill_replica, kill_state
from tests.support.plays import SSE, Abort, Act, Hang, Head, Play, Seen, Wait, tail, words
from tests.support.serving import Server, until
from tests.support.upstream import Upstream

APP = "killbooks"
FAR_TOKENS = 64
WORDS = 250
READ = 100  # words that the client has read when somebody dies
WORD_S = 0.01
DEADLINE_S = 5.0
# Not one like the other: an answer that repeats itself is stopped. Each is one token to the scripted tier, too.
TEXT = " ".join(f"w{n}" for n in range(WORDS))
PROMPT = {"role": "user", "content": "Tell me a long story."}
PROMPT_TOKENS_MAX = 32


def told(seen: Seen, *, breaks: bool = False) -> Play:
    """The text, a word at a time; with `breaks` the connection is reset in the middle."""
    acts: list[Act] = [Head(headers=SSE)]
    for word in words(TEXT)[: READ + 20 if breaks else None]:
        acts += [word, Wait(WORD_S)]
    return (*acts, Abort()) if breaks else (*acts, *tail())


@pytest.fixture(scope="module")
def near(deploy, upstream):
    return deploy(args(upstream), "near_books")


@pytest.fixture(scope="module")
def server(deploy_on_ray, upstream):
    return deploy_on_ray(args(upstream), APP)


def args(upstream: Upstream) -> dict[str, Any]:
    upstream.plays("whole", told)
    upstream.plays("broken", lambda seen: told(seen, breaks=True))
    upstream.plays("stalled", (*told(Seen("", "", {}, b""), breaks=True)[:-1], Hang()))
    tiers = {
        "slow": scripts.scripted({"token_delay_s": WORD_S, "answer": TEXT}),
        "far": scripts.hosted(upstream, "whole", cloud=True),
        "broken": scripts.hosted(upstream, "broken", cloud=True),
        "stalled": scripts.hosted(upstream, "stalled", cloud=True, timeouts=PATIENT | {"idle_s": 0.5}),
    }
    # One call for each stream: another that goes on with it would read on behind the client's count.
    once, server = {"continuations_max": 0}, {"deadline_s": DEADLINE_S}
    return scripts.graph(tiers, ["slow"], retries=0, timeouts=PATIENT, server=server, escalation=once)


@dataclass
class Read:
    """What one client has read until its stream ended. `error`: how, by the last frame."""

    words: int = 0
    error: str = ""


def read_until(server: Server, session: str, model: str, then: Callable[[], Any] | None, after: int = READ) -> Read:
    """Stream; after so many words do `then` once, and leave where it says so. Reads on to the end, whatever it is."""
    read = Read()
    url, body = f"{server.url}/v1/chat/completions", {"model": model, "messages": [PROMPT], "stream": True}
    headers = {"x-mlx-stack-session": session}
    try:
        with httpx.stream("POST", url, json=body | {"max_tokens": 2 * WORDS}, headers=headers, timeout=60.0) as got:
            for line in got.iter_lines():
                if not line.startswith("data: {"):
                    continue
                frame = json.loads(line[6:])
                read.error = frame.get("error", {}).get("code", read.error)
                for choice in frame.get("choices", []):
                    read.words += len((choice["delta"].get("content") or "").split())
                if read.words >= after and then is not None:
                    leave, then = then(), None
                    if leave:
                        return read
    except httpx.HTTPError as broken:
        read.error = type(broken).__name__
    return read


# Who dies, or leaves, in the middle of an answer of which tier, and what the client sees of it.
DEATHS: dict[str, tuple[str, Callable[[], Any] | None, set[str]]] = {
    "Router, local": ("slow", partial(kill_replica, APP, "Router"), {"RemoteProtocolError", "ReadError"}),
    "Router, cloud": ("far", partial(kill_replica, APP, "Router"), {"RemoteProtocolError", "ReadError"}),
    "replica, local": ("slow", partial(kill_replica, APP, "slow"), {"stream_broken"}),
    "replica, cloud": ("far", partial(kill_replica, APP, "far"), {"stream_broken"}),
    "state": ("slow", lambda: not kill_state(APP), {""}),
}
LEAVERS: dict[str, tuple[str, Callable[[], Any] | None, set[str]]] = {
    "client, local": ("slow", lambda: True, {""}),
    "client, cloud": ("far", lambda: True, {""}),
    "upstream": ("broken", None, {"stream_broken"}),
    "silence": ("stalled", None, {"stream_broken"}),
}


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.parametrize("who", DEATHS)
def test_the_books_are_near_what_left(server, who):
    """Whoever dies: the session is in the books, which come to hold what its client has read, give or take; soon after
    the death they are as near already, though the call of a dead Router stays open until its time is over."""
    assert_near(server, who, *DEATHS[who])


@pytest.mark.parametrize("who", LEAVERS)
def test_the_books_are_near_what_left_where_nobody_dies(near, who):
    """A client that leaves and an upstream that breaks off are the same."""
    assert_near(near, who, *LEAVERS[who])


def assert_near(server: Server, who: str, tier: str, then: Callable[[], Any] | None, errors: set[str]) -> None:
    session = f"died-{who.replace(', ', '-')}"
    until(lambda: answers(server, tier), f"tier {tier} answers")
    read = read_until(server, session, tier, then)
    assert read.error in errors
    assert read.words >= READ

    ledger = Ledger(server, session)
    early = until(lambda: known(server, session), "the session is known")
    books = until(ledger.settled, "no call is open", wait_s=4 * DEADLINE_S)
    figures = f"{who}: read {read.words} words; books {early['spent_tokens']}, then {books['spent_tokens']}"
    print(figures)
    # What happened while the actor was away waits in the Router until it is back.
    for spent in (books if who == "state" else early)["spent_tokens"], books["spent_tokens"]:
        assert spent >= read.words - FAR_TOKENS, figures
        assert spent <= read.words + PROMPT_TOKENS_MAX + FAR_TOKENS, figures


def answers(server: Server, tier: str) -> bool:
    """Whether the tier, a Router before it and the state behind both are there again: without an answer of the state, a
    local tier answers all the same, and its call isn't in the books before it ends."""
    if tier not in ("slow", "far"):
        return True
    body = {"model": tier, "messages": [PROMPT], "max_tokens": 1}
    try:
        response = server.post(body)
        report = server.get(f"/v1/reliability/requests/{response.headers['x-request-id']}")
    except httpx.HTTPError:
        return False
    return response.status_code == report.status_code == 200 and not report.json()["state_silent"]


def known(server: Server, session: str) -> dict[str, Any] | None:
    """The session's books as soon as somebody answers: asked without naming a key, as an operator would."""
    try:
        got = httpx.get(f"{server.url}/v1/reliability/sessions/{session}", timeout=10.0)
    except httpx.HTTPError:
        return None
    return dict(got.json()) if got.status_code == 200 else None


@pytest.mark.ray
@pytest.mark.nightly
def test_a_dead_routers_session_is_known_at_once_though_nothing_of_it_was_said(server):
    """A few words are less than what is said on the way; the call is in the books all the same: open, and reserved."""
    session = "died-early"
    until(lambda: answers(server, "slow"), "the tier answers")
    read = read_until(server, session, "slow", partial(kill_replica, APP, "Router"), after=10)
    assert read.error in ("RemoteProtocolError", "ReadError")
    began = time.monotonic()
    early = until(lambda: known(server, session), "the session is known")
    if time.monotonic() - began < DEADLINE_S / 2:
        assert early["open_calls"] == 1
    books = until(Ledger(server, session).settled, "no call is open", wait_s=4 * DEADLINE_S)
    assert 0 < books["spent_tokens"] <= PROMPT_TOKENS_MAX + FAR_TOKENS
