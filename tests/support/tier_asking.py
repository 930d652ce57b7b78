"""What the tests of tiers share: a request, a tier, a whole answer, and waiting for a condition."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from deployments.request.interfaces import Tier
from deployments.tiers.hosted.hosted_tier import HostedTier
from reliability.types import CallDelta, ChatRequest, Event, Failed, Finish, Text, Usage
from tests.support.plays import Play, Player, Seen
from tests.support.renderings import WEATHER_TOOL as WEATHER_TOOL
from tests.support.upstream import Upstream


def ask(text: str = "Say hello.", **fields: Any) -> ChatRequest:
    usual: dict[str, Any] = {"max_tokens": 64, "timeout_s": 60.0, "request_id": "r-1", "session_id": "s-1"}
    usual["messages"] = ({"role": "user", "content": text},)
    return ChatRequest(**(usual | fields))


async def batches(tier: Tier, request: ChatRequest) -> list[list[Event]]:
    """The whole answer, as it came."""
    stream: Any = tier.stream(request)
    async with aclosing(stream):
        return [batch async for batch in stream]


async def answer(tier: Tier, request: ChatRequest) -> list[Event]:
    return [event for batch in await batches(tier, request) for event in batch]


def answers(tier: Tier, *requests: ChatRequest) -> list[list[Event]]:
    """The events of each request, one after the other, of a tier that is closed then."""

    async def run() -> list[list[Event]]:
        try:
            return [await answer(tier, request) for request in requests]
        finally:
            await tier.close()

    return asyncio.run(run())


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def calls_of(events: list[Event]) -> list[tuple[str | None, str | None, str]]:
    """Id, name and arguments of each call of an answer."""
    calls: dict[int, tuple[str | None, str | None, str]] = {}
    for event in events:
        if isinstance(event, CallDelta):
            call_id, name, arguments = calls.get(event.index, (event.id, event.name, ""))
            calls[event.index] = (call_id, name, arguments + event.arguments)
    return [calls[index] for index in sorted(calls)]


def usage_of(events: list[Event]) -> Usage:
    last = events[-1]
    assert isinstance(last, Finish)
    assert last.usage is not None
    return last.usage


def failed(events: list[Event]) -> Failed:
    assert isinstance(events[-1], Failed)
    return events[-1]


def hosted_tier(upstream: Upstream, model: str = "m", **options: Any) -> HostedTier:
    return HostedTier(name="premium", base_url=upstream.base_url, model=model, **options)


def play(upstream: Upstream, played: Play, request: ChatRequest | None = None, **options: Any) -> list[Event]:
    """The events of one request that a hosted tier's upstream answers with `played`."""
    upstream.plays("m", played)
    return answers(hosted_tier(upstream, **options), request or ask())[0]


def exchange(player: Player, *requests: ChatRequest, **options: Any) -> tuple[list[list[Event]], list[Seen]]:
    """The events of each request of a hosted tier whose upstream plays this, and what that was asked."""
    with Upstream() as upstream:
        upstream.plays("m", player)
        return answers(hosted_tier(upstream, **options), *requests), upstream.log


async def eventually(condition: Callable[[], bool | Awaitable[bool]], within_s: float = 1.0) -> None:
    """Wait until `condition` holds; fail if it doesn't in time."""
    deadline = time.monotonic() + within_s
    while True:
        held = condition()
        if held if isinstance(held, bool) else await held:
            return
        assert time.monotonic() < deadline, f"not within {within_s} s"
        await asyncio.sleep(0.005)
