"""The tier kind `hosted` in time: clocks, lists of events, connections, and readers that leave."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from deployments.tiers.hosted import hosted_tier as hosted
from reliability.types import Event, Fault, Finish, Started, Text
from tests.support import plays
from tests.support.plays import Head, Send, chunk
from tests.support.tier_asking import answer, ask, batches, eventually, failed, hosted_tier, play, text_of
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

    async def run() -> list[Event]:
        tier = hosted_tier(upstream)
        return await answer(tier, ask(timeout_s=0.2))

    assert failed(asyncio.run(run())).fault is Fault.DEADLINE


def test_one_read_is_one_list(upstream: Upstream) -> None:
    """Law: what arrives in one read leaves as one list, with neighbours of one kind joined."""
    together = b"".join(send.data for send in plays.good("a b c d e f")[1:] if isinstance(send, Send))
    upstream.plays("m", (Head(headers=plays.SSE), Send(together)))

    async def run() -> None:
        tier = hosted_tier(upstream)
        lists = await batches(tier, ask())
        assert [len(events) for events in lists] == [1, 2]
        assert lists[1][0] == Text("a b c d e f")
        await tier.close()

    asyncio.run(run())


@pytest.mark.parametrize("streamed", [True, False])
def test_only_who_reads_along_gets_the_first_words_at_once(
    upstream: Upstream, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: an answer that is wanted whole, and comes within the window, is one list behind `Started`; where its client
    reads along the first words are a list of their own."""
    monkeypatch.setattr(hosted, "WINDOW_S", 60.0)
    head, comment, first, *rest = plays.good("a b c d e f")
    upstream.plays("m", (head, comment, first, plays.Wait(0.2), *rest))

    async def run() -> None:
        tier = hosted_tier(upstream)
        lists = await batches(tier, ask(streamed=streamed))
        assert [len([e for e in events if isinstance(e, Text)]) for events in lists] == (
            [0, 1, 1] if streamed else [0, 1]
        )
        assert text_of([event for events in lists for event in events]) == "a b c d e f"
        await tier.close()

    asyncio.run(run())


def test_a_connection_is_used_again(upstream: Upstream) -> None:
    """Law: good answers, one after another, need one connection; so does an error that was read to its end."""
    upstream.plays("m", plays.good(), plays.tools(("f", {})), plays.status(429), plays.plain_json(), plays.good())

    async def run() -> None:
        tier = hosted_tier(upstream)
        for _ in range(6):
            await answer(tier, ask())
        await tier.close()

    asyncio.run(run())
    assert len({seen.client for seen in upstream.log[-6:]}) == 1


def test_a_closed_tier_lets_streams_end(upstream: Upstream) -> None:
    """Law: a tier that is closed lets running streams end, takes no new ones, and keeps no connection."""
    upstream.plays("m", plays.slow(0.05))

    async def run() -> None:
        tier = hosted_tier(upstream)
        stream: Any = tier.stream(ask())
        assert await anext(stream) == [Started()]
        await tier.close()
        assert failed(await answer(tier, ask())).fault is Fault.UNAVAILABLE
        assert (await tier.status()).reason == "it is closed"
        rest = [event async for events in stream for event in events]
        assert isinstance(rest[-1], Finish)
        assert tier.active == 0

    asyncio.run(run())


def test_leaving_before_the_headers_closes_the_connection(upstream: Upstream) -> None:
    """Law: a reader that is cancelled while the upstream says nothing yet takes the connection with it."""
    upstream.plays("hanging", plays.hang())

    async def run() -> None:
        tier = hosted_tier(upstream, "hanging")
        task = asyncio.create_task(answer(tier, ask()))
        await eventually(lambda: any(seen.model == "hanging" for seen in upstream.log), 5.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: all(seen.left for seen in upstream.log if seen.model == "hanging"))
        assert tier.active == 0
        await tier.close()

    asyncio.run(run())


@pytest.mark.parametrize("words", [1, 2])
def test_leaving_early_closes_the_connection(upstream: Upstream, words: int) -> None:
    """Law: closing the iterator after the first words, or the next, is seen by the upstream at once."""
    model = f"left-{words}"
    upstream.plays(model, plays.hang(2))

    async def run() -> None:
        tier = hosted_tier(upstream, model)
        stream: Any = tier.stream(ask())
        came = ""
        while len(came.split()) < words:  # both may come in one list, or as one text
            came += "".join(event.text for event in await anext(stream) if isinstance(event, Text))
        await stream.aclose()
        await eventually(lambda: [seen.left for seen in upstream.log if seen.model == model] == [True])
        await tier.close()

    asyncio.run(run())


def test_an_endless_error_body_is_cut(upstream: Upstream) -> None:
    """Law: of an error's body no more is read than its bound, and the connection is given up."""
    endless: plays.Play = (Head(400, {"Content-Type": "text/plain"}), *[Send(b"no " * 9000)] * 8, plays.Hang())
    upstream.plays("endless", endless)

    async def run() -> None:
        tier = hosted_tier(upstream, "endless")
        assert failed(await answer(tier, ask())).fault is Fault.BAD_REQUEST
        await eventually(lambda: [seen.left for seen in upstream.log if seen.model == "endless"] == [True])
        await tier.close()

    asyncio.run(run())


def test_a_slow_reader_loses_nothing(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: with a full inbox the upstream is held back, and every byte still arrives in order."""
    monkeypatch.setattr("deployments.tiers.hosted.inbox.INBOX_BYTES_MAX", 1000)
    said = " ".join(str(number) for number in range(60_000))  # twelve megabytes, as chunks
    upstream.plays("m", plays.good(said))

    async def run() -> None:
        tier = hosted_tier(upstream)
        got = ""
        stream: Any = tier.stream(ask())
        async with aclosing(stream):
            async for events in stream:
                # The inbox holds its bound and one piece; a piece is what the connection held, under half a megabyte.
                assert sum(len(event.text) for event in events if isinstance(event, Text)) < len(said) / 5
                got += text_of(events)
        assert got == said
        await tier.close()

    asyncio.run(run())
