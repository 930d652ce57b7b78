"""The tier kind `hosted` in time: clocks, lists of events, connections, and readers that leave."""

import asyncio
import json
import logging
from contextlib import aclosing
from typing import Any

import pytest

from deployments.tiers.hosted import hosted_tier as hosted
from deployments.tiers.hosted.connection import REDACTED
from deployments.tiers.hosted.hosted_tier import HostedTier
from deployments.tiers.hosted.upstream_errors import MESSAGE_CHARS_MAX
from reliability.types import Fault, Finish, Started, Text, TierState
from tests.support import plays
from tests.support.plays import Head, Send, chunk
from tests.support.tier_asking import answer, answers, ask, batches, eventually, failed, hosted_tier, play, text_of
from tests.support.upstream import Upstream


def test_silence_after_the_finish_reason_is_not_waited_out(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: once the finish reason is here, an upstream that never closes costs TAIL_S and no fault."""
    monkeypatch.setattr(hosted, "TAIL_S", 0.05)
    played = (Head(headers=plays.SSE), Send(chunk({"content": "x"})), Send(chunk({}, "stop")), plays.Hang())
    events = play(upstream, played, idle_s=60.0)
    assert isinstance(events[-1], Finish)
    assert events[-1].usage is None


def test_each_phase_has_its_clock(upstream: Upstream) -> None:
    """Law: silence before the headers is a first-token timeout, and the request's own time ends everything."""
    assert failed(play(upstream, plays.hang(), idle_s=0.1, connect_s=0.1)).fault is Fault.FIRST_TOKEN_TIMEOUT
    upstream.plays("m", plays.hang(1))
    assert failed(answers(hosted_tier(upstream), ask(timeout_s=0.2))[0]).fault is Fault.DEADLINE


async def test_one_read_is_one_list(upstream: Upstream) -> None:
    """Law: what arrives in one read leaves as one list, with neighbours of one kind joined."""
    together = b"".join(send.data for send in plays.good("a b c d e f")[1:] if isinstance(send, Send))
    upstream.plays("m", (Head(headers=plays.SSE), Send(together)))
    tier = hosted_tier(upstream)
    lists = await batches(tier, ask())
    assert [len(events) for events in lists] == [1, 2]
    assert lists[1][0] == Text("a b c d e f")
    await tier.close()


@pytest.mark.parametrize("streamed", [True, False])
async def test_only_who_reads_along_gets_the_first_words_at_once(upstream, streamed, monkeypatch) -> None:
    """Law: an answer that is wanted whole, and comes within the window, is one list behind `Started`; where its client
    reads along the first words are a list of their own."""
    monkeypatch.setattr(hosted, "WINDOW_S", 60.0)
    head, comment, first, *rest = plays.good("a b c d e f")
    upstream.plays("m", (head, comment, first, plays.Wait(0.2), *rest))
    tier = hosted_tier(upstream)
    lists = await batches(tier, ask(streamed=streamed))
    assert [len([e for e in events if isinstance(e, Text)]) for events in lists] == ([0, 1, 1] if streamed else [0, 1])
    assert text_of([event for events in lists for event in events]) == "a b c d e f"
    await tier.close()


async def test_a_connection_is_used_again(upstream: Upstream) -> None:
    """Law: good answers, one after another, need one connection; so does an error that was read to its end."""
    upstream.plays("m", plays.good(), plays.tools(("f", {})), plays.status(429), plays.plain_json(), plays.good())
    tier = hosted_tier(upstream)
    for _ in range(6):
        await answer(tier, ask())
    await tier.close()
    assert len({seen.client for seen in upstream.log[-6:]}) == 1


@pytest.mark.parametrize(("key", "held", "left"), [("alice", 2, 2), ("", 4, 0)])
async def test_a_key_leaves_half_of_the_connections(upstream, monkeypatch, key, held, left) -> None:
    """Law: one API key holds at most half of a tier's connections, and is told so; without keys all are anybody's. A
    stream that ends makes room."""
    monkeypatch.setattr(hosted, "STREAMS_MAX", 4)
    upstream.plays("m", plays.slow(0.05))
    tier, streams = hosted_tier(upstream), []

    async def open_all(name: str) -> Any:
        for _ in range(6):
            stream: Any = tier.stream(ask(key=name))
            events = await anext(stream)
            if events != [Started()]:
                return events[-1]
            streams.append(stream)
        raise AssertionError("nobody was refused")

    refused = await open_all(key)
    assert (refused.fault, len(streams)) == (Fault.OVERLOADED, held)
    assert ("API key" in refused.message) == bool(key)
    assert (await open_all("bob")).fault is Fault.OVERLOADED
    assert len(streams) == held + left
    await streams.pop(0).aclose()
    assert (await open_all(key)).fault is Fault.OVERLOADED
    assert tier.active == len(streams) == 4
    for stream in streams:
        await stream.aclose()
    assert tier.active == 0
    await tier.close()


async def test_a_closed_tier_lets_streams_end(upstream: Upstream) -> None:
    """Law: a tier that is closed lets running streams end, takes no new ones, and keeps no connection."""
    upstream.plays("m", plays.slow(0.05))
    tier = hosted_tier(upstream)
    stream: Any = tier.stream(ask())
    assert await anext(stream) == [Started()]
    await tier.close()
    assert failed(await answer(tier, ask())).fault is Fault.UNAVAILABLE
    assert (await tier.status()).reason == "it is closed"
    rest = [event async for events in stream for event in events]
    assert isinstance(rest[-1], Finish)
    assert tier.active == 0


async def test_leaving_before_the_headers_closes_the_connection(upstream: Upstream) -> None:
    """Law: a reader that is cancelled while the upstream says nothing yet takes the connection with it."""
    upstream.plays("hanging", plays.hang())
    tier = hosted_tier(upstream, "hanging")
    task = asyncio.create_task(answer(tier, ask()))
    await eventually(lambda: any(seen.model == "hanging" for seen in upstream.log), 5.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: all(seen.left for seen in upstream.log if seen.model == "hanging"))
    assert tier.active == 0
    await tier.close()


async def test_an_endless_error_body_is_cut(upstream: Upstream) -> None:
    """Law: of an error's body no more is read than its bound, and the connection is given up."""
    endless: plays.Play = (Head(400, {"Content-Type": "text/plain"}), *[Send(b"no " * 9000)] * 8, plays.Hang())
    upstream.plays("endless", endless)
    tier = hosted_tier(upstream, "endless")
    assert failed(await answer(tier, ask())).fault is Fault.REFUSED
    await eventually(lambda: [seen.left for seen in upstream.log if seen.model == "endless"] == [True])
    await tier.close()


async def test_a_slow_reader_loses_nothing(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: with a full inbox the upstream is held back, and every byte still arrives in order."""
    monkeypatch.setattr("deployments.tiers.hosted.connection.INBOX_BYTES_MAX", 1000)
    said = " ".join(str(number) for number in range(60_000))  # twelve megabytes, as chunks
    upstream.plays("m", plays.good(said))
    tier, got = hosted_tier(upstream), ""
    stream: Any = tier.stream(ask())
    async with aclosing(stream):
        async for events in stream:
            # The inbox holds its bound and one piece; a piece is what the connection held, under half a megabyte.
            assert sum(len(event.text) for event in events if isinstance(event, Text)) < len(said) / 5
            got += text_of(events)
    assert got == said
    await tier.close()


KEY = "sk-or-v1-0123456789abcdef"
KEY_ENV = "TRIED_API_KEY"


async def test_without_a_key_the_tier_says_so(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a key that is needed and missing makes the tier unavailable, with the variable's name."""
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    tier = hosted_tier(upstream, api_key_env="OPENROUTER_API_KEY")
    status = await tier.status()
    assert (status.state, status.reason) == (TierState.UNAVAILABLE, "OPENROUTER_API_KEY is not set")
    before = len(upstream.log)
    refused = failed(await answer(tier, ask()))
    assert (refused.fault, len(upstream.log)) == (Fault.UNAVAILABLE, before)
    assert "OPENROUTER_API_KEY is not set" in refused.message


async def test_the_key_is_read_at_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a key that is set later is used from then on."""
    monkeypatch.setenv(KEY_ENV, "wrong-key-0000")
    with Upstream(key=KEY) as upstream:
        tier = hosted_tier(upstream, api_key_env=KEY_ENV)
        assert failed(await answer(tier, ask())).fault is Fault.AUTH
        monkeypatch.setenv(KEY_ENV, f" {KEY}\n")
        assert isinstance((await answer(tier, ask()))[-1], Finish)
        assert upstream.log[-1].headers["authorization"] == f"Bearer {KEY}"
        await tier.close()


@pytest.mark.parametrize("key", [KEY, "plain0key", "k" * 600, 'with spaces and "quotes"'])
async def test_the_key_never_leaks(upstream, key, monkeypatch, caplog) -> None:
    """Law: an upstream that echoes the key, in any error, finds it redacted everywhere on our side."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(KEY_ENV, key)
    echoes = [
        plays.status(400, f"{'x' * (MESSAGE_CHARS_MAX - 10)} {key}", param=key, error_code=key),
        plays.status(500, f"Bearer {key}"),
        plays.whole(f"denied: {key}".encode(), status_code=403),
        plays.error_frame(1, key, f"bad key {key}"),
        plays.whole(json.dumps({"error": "denied", "detail": key}).encode(), status_code=422),
        plays.whole(json.dumps({"error": key}).encode()),
        (Head(headers=plays.SSE), Send(f"event: error\ndata: {key}\n\n".encode())),
    ]
    upstream.plays("m", *echoes)
    tier = hosted_tier(upstream, api_key_env=KEY_ENV, headers={"X-Api-Key": f"{key}-2"})
    for _ in echoes:
        seen = repr(await answer(tier, ask()))
        assert key not in seen
        assert key[: len(key) // 2] not in seen
    assert key not in repr(tier) + str(await tier.status()) + caplog.text
    await tier.close()


@pytest.mark.parametrize("key", ["secret\nkey", "schlüssel"])
async def test_a_key_that_no_header_can_carry(upstream: Upstream, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a key with a line break or an umlaut is a reason in the status, without the key."""
    monkeypatch.setenv(KEY_ENV, key)
    tier = hosted_tier(upstream, api_key_env=KEY_ENV)
    assert (await tier.status()).reason == f"{KEY_ENV} holds characters that no HTTP header can carry"
    assert failed(await answer(tier, ask())).fault is Fault.UNAVAILABLE


@pytest.mark.parametrize(
    ("address", "query", "echo"),
    [
        ("//joe:hunter22@", "", "unknown login: Basic am9lOmh1bnRlcjIy"),
        ("//", "?key=hunter%2B22", "Cannot POST /v1/chat/completions?key=hunter%2B22"),
        ("//", "?version=2026&api-key=hunter%2B22", "the api-key hunter+22 is unknown in version 2026"),
    ],
)
async def test_an_address_s_secrets_are_hidden_in_each_form(upstream, address, query, echo) -> None:
    """Law: what of a base_url opens the upstream is redacted as it is sent, as it is written and as it is meant; the
    rest of the address is no secret."""
    upstream.plays("m", plays.status(400, echo))
    tier = HostedTier(name="premium", base_url=upstream.base_url.replace("//", address) + query, model="m")
    seen = repr(await answer(tier, ask())) + str(await tier.status())
    assert not any(secret in seen.replace(str(upstream.port), "") for secret in ("am9l", "hunter", "22"))
    assert upstream.log[-1].headers.get("authorization") == ("Basic am9lOmh1bnRlcjIy" if "@" in address else None)
    assert REDACTED in seen
    assert ("2026" in echo) == ("2026" in seen)
    await tier.close()
