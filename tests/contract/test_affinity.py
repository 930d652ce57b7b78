"""Sessions stay where their prompts are, and no replica becomes a hot spot: on real Ray."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from deployments.config.app_config import load
from deployments.graph.handle import HandleTier
from deployments.graph.session_routing import SPREAD, SessionRouter, session_routing
from reliability.types import Event, Finish, FinishReason, Text
from tests.support.small_config import BASE, REQUEST, options_of

APP = "affinity"


class Named:
    """A tier replica that answers with its own name, and holds the stream open while the request says so."""

    async def stream(self, request: Any) -> AsyncGenerator[list[Event], None]:
        from ray import serve

        yield [Text(serve.get_replica_context().replica_id.unique_id)]
        if request.stop:
            await asyncio.get_running_loop().create_future()
        yield [Finish(reason=FinishReason.STOP)]


@pytest.fixture(scope="module")
def tier(serve_port: int) -> Iterator[HandleTier]:
    from ray import serve

    deployment = serve.deployment(Named).options(
        num_replicas=2, ray_actor_options={"num_cpus": 0}, request_router_config=session_routing()
    )
    handle = serve.run(deployment.bind(), name=APP, route_prefix=f"/{APP}")
    yield HandleTier("t", handle)
    serve.delete(APP)


async def home(tier: HandleTier, session: str) -> str:
    events = [e async for batch in tier.stream(replace(REQUEST, session_id=session)) for e in batch]
    (text,) = (event.text for event in events if isinstance(event, Text))
    return text


@pytest.mark.ray
def test_a_session_stays_and_sessions_spread(tier: HandleTier) -> None:
    """Law: a session's requests all go to one replica, and thirty sessions use both."""

    async def ask() -> list[tuple[str, ...]]:
        return [tuple([await home(tier, f"session {n}") for _ in range(3)]) for n in range(30)]

    homes = asyncio.run(ask())
    assert all(len(set(visited)) == 1 for visited in homes)
    assert min(Counter(visited[0] for visited in homes).values()) >= 5


@pytest.mark.ray
def test_a_busy_replica_is_left_for_the_other(tier: HandleTier) -> None:
    """Law: while a session's own replica has more than its share open, further ones go to the other; as soon as they
    have left, the session is at home again."""

    async def crowd() -> tuple[str, Counter[str], str]:
        at_home = await home(tier, "busy")
        seen: Counter[str] = Counter()
        async with AsyncExitStack() as open_streams:
            for _ in range(8):
                stream = tier.stream(replace(REQUEST, session_id="busy", stop=("wait",)))
                open_streams.push_async_callback(stream.aclose)
                ((first,)) = await anext(stream)
                seen[first.text] += 1
        return at_home, seen, await home(tier, "busy")

    at_home, seen, afterwards = asyncio.run(crowd())
    assert len(seen) == 2
    assert max(seen.values()) <= math.ceil(SPREAD * 8 / 2)
    assert seen[at_home] == max(seen.values())
    assert afterwards == at_home


def test_only_mlx_tiers_of_several_replicas_are_routed_so() -> None:
    """Law: where there is no choice, or no prompt to find, Serve's own routing stays."""
    two = {**BASE, "tiers": {**BASE["tiers"], "m": {"kind": "mlx", "model": "path:nowhere", "max_replicas": 2}}}

    def router(raw: dict[str, Any], name: str) -> Any:
        return options_of(load(raw), name)._deployment_config.request_router_config.get_request_router_class()

    assert router(two, "m").__name__ == SessionRouter.__name__
    assert router(BASE, "m").__name__ != SessionRouter.__name__
    assert router(two, "fast").__name__ != SessionRouter.__name__
