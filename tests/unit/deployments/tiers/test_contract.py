"""The contract of `deployments.request.interfaces.Tier`: one set of laws for every tier kind."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from deployments.request.interfaces import Tier
from deployments.tiers.hosted.hosted_tier import HostedTier
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.types import CallDelta, Counted, Event, Failed, Finish, Reasoning, Started, Text, TierState
from tests.support.plays import SSE, Head, Play, Seen, Send, Wait, chunk, tail
from tests.support.tier_asking import answer, ask, batches, eventually, text_of, usage_of
from tests.support.upstream import Upstream

NAME = "tried"
LONG = "Tell a long story about the sea."
LONG_TOKENS = 4000
READY_S = 180.0


@dataclass
class Kind:
    """One tier kind: how to make a tier, and how to see from outside that it has stopped working."""

    fresh: Callable[[], Tier]
    is_idle: Callable[[Tier], bool]
    shared: Tier | None = None  # a tier that is expensive to make serves all tests

    @asynccontextmanager
    async def tier(self) -> AsyncIterator[Any]:
        tier = self.shared or self.fresh()

        async def ready() -> bool:
            return (await tier.status()).state is TierState.READY

        await eventually(ready, READY_S)
        yield tier
        if tier is not self.shared:
            await tier.close()


def scripted() -> Iterator[Kind]:
    rules: list[dict[str, Any]] = [
        {"when": {"last_user": LONG}, "answer": "wave " * LONG_TOKENS, "token_delay_s": 0.005},
        {"answer": "You said: {{last_user}}"},
    ]
    yield Kind(lambda: ScriptedTier(name=NAME, script=rules), lambda tier: tier.active == 0)  # type: ignore[attr-defined]


def hosted() -> Iterator[Kind]:
    with Upstream() as upstream:
        upstream.plays("m", _played)

        def fresh() -> Tier:
            return HostedTier(name=NAME, base_url=upstream.base_url, model="m")

        # Only the upstream can say whether its generation was stopped.
        yield Kind(fresh, lambda _: all(seen.ended or seen.left for seen in upstream.log))


def _played(seen: Seen) -> Play:
    """An upstream that obeys `max_tokens`, a word being a token."""
    body = seen.body
    said = body["messages"][-1]["content"]
    wanted = ["wave "] * LONG_TOKENS if said == LONG else [f"{word} " for word in f"You said: {said}".split(" ")]
    kept = wanted[: body["max_tokens"]]
    sends = [act for word in kept for act in (Send(chunk({"content": word})), Wait(0.005 if said == LONG else 0))]
    usage = {"prompt_tokens": 9, "completion_tokens": len(kept)}
    return (Head(headers=SSE), *sends, *tail("length" if len(kept) < len(wanted) else "stop", usage))


def mlx() -> Iterator[Kind]:
    from deployments.tiers.mlx.mlx_tier import MlxTier

    def is_idle(tier: Any) -> bool:
        return not tier._engine._batch and not tier._engine._waiting

    shared = MlxTier(name=NAME, model="auto")
    yield Kind(lambda: MlxTier(name=NAME, model="auto"), is_idle, shared)
    asyncio.run(shared.close())


KINDS = {"scripted": scripted, "hosted": hosted, "mlx": mlx}


@pytest.fixture(scope="module", params=["scripted", "hosted", pytest.param("mlx", marks=pytest.mark.model)])
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    yield from KINDS[request.param]()


def in_order(events: list[Event]) -> bool:
    """The order of `reliability.types`: Started? (Text | Reasoning | CallDelta | Counted)* (Finish | Failed)."""
    body = events[1:-1] if isinstance(events[0], Started) else events[:-1]
    inner = all(isinstance(event, Text | Reasoning | CallDelta | Counted) for event in body)
    return inner and isinstance(events[-1], Finish | Failed)


class TestContract:
    async def test_events_come_in_order_and_end_once(self, kind: Kind) -> None:
        """Law: Started, content, exactly one Finish; no list and no text is empty; usage is present."""
        async with kind.tier() as tier:
            lists = await batches(tier, ask(temperature=0.0))
            events = [event for batch in lists for event in batch]
            assert all(lists)
            assert isinstance(events[0], Started)
            assert in_order(events)
            assert all(event.text for event in events if isinstance(event, Text | Reasoning))
            assert text_of(events)
            assert min(usage_of(events).prompt_tokens, usage_of(events).completion_tokens) > 0

    async def test_max_tokens_is_obeyed(self, kind: Kind) -> None:
        """Law: an answer that reaches the cap ends in `length`, with no more tokens than the cap."""
        async with kind.tier() as tier:
            events = await answer(tier, ask(LONG, max_tokens=5, temperature=0.0))
            assert (usage_of(events).completion_tokens, events[-1].reason) == (5, "length")

    async def test_closing_the_iterator_stops_the_work(self, kind: Kind) -> None:
        """Law: within one second after the iterator was closed, nothing is generated any more."""
        async with kind.tier() as tier:
            async with aclosing(tier.stream(ask(LONG, max_tokens=LONG_TOKENS))) as stream:
                async for batch in stream:
                    if any(isinstance(event, Text) for event in batch):
                        assert not kind.is_idle(tier)
                        break
            await eventually(lambda: kind.is_idle(tier))

    async def test_cancelling_the_reader_stops_the_work(self, kind: Kind) -> None:
        """Law: the same where the task that reads is cancelled, and the cancellation is not swallowed."""
        async with kind.tier() as tier:
            speaks = asyncio.Event()

            async def read() -> None:
                async for batch in tier.stream(ask(LONG, max_tokens=LONG_TOKENS)):
                    if any(isinstance(event, Text) for event in batch):
                        speaks.set()

            task = asyncio.create_task(read())
            await asyncio.wait_for(speaks.wait(), 30.0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await eventually(lambda: kind.is_idle(tier))

    async def test_two_streams_do_not_mix(self, kind: Kind) -> None:
        """Law: an answer is the same whether or not another one runs beside it."""
        async with kind.tier() as tier:
            asked = [ask(text, max_tokens=8, temperature=0.0) for text in ("Count to nine.", "Name a colour.")]
            alone = [text_of(await answer(tier, request)) for request in asked]
            together = [text_of(events) for events in await asyncio.gather(*(answer(tier, r) for r in asked))]
            assert together == alone
            assert alone[0] != alone[1]

    async def test_unicode_goes_through(self, kind: Kind) -> None:
        """Law: text beyond ASCII is taken and given whole; every text that leaves can be encoded."""
        async with kind.tier() as tier:
            events = await answer(tier, ask("Grüße, 你好, 🌍‍ ok\u2028?", temperature=0.0))
            assert isinstance(events[-1], Finish)
            assert text_of(events).encode("utf-8")
            if kind.shared is None:  # the kinds that echo
                assert "Grüße, 你好, 🌍‍ ok\u2028?" in text_of(events)

    async def test_status_names_the_tier(self, kind: Kind) -> None:
        """Law: a status can be asked at any time, also after close, and is plain data."""
        async with kind.tier() as tier:
            status = await tier.status()
            assert (status.name, status.state, status.reason) == (NAME, TierState.READY, "")
            assert json.dumps([status.kind, status.model, status.source, status.context_tokens])

    async def test_close_is_safe_twice(self, kind: Kind) -> None:
        """Law: after close (also twice) a tier answers nothing, says so as values, and raises nothing."""
        tier = kind.fresh()
        await tier.close()
        await tier.close()
        assert (await tier.status()).name == NAME
        events = await answer(tier, ask())
        assert in_order(events)
        assert isinstance(events[-1], Failed)
