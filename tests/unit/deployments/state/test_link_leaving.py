"""The link where grants can get lost: a caller that leaves while its answer comes, an actor that is being made."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deployments.state.link import Link
from reliability.admission.admit import Grant
from tests.support.incarnations import LIMITS, ask, settled
from tests.support.near_actor import NearActor


class OneTurn(NearActor):
    """Each call takes one turn of the event loop."""

    async def call(self, method: str, *args: Any) -> Any:
        await asyncio.sleep(0)
        return await super().call(method, *args)


@pytest.mark.parametrize("turns", range(12))
def test_a_caller_that_leaves_at_any_turn_leaves_no_grant_behind(tmp_path, turns):
    """Whenever the asker is cancelled, also after the answer is there and before it could be read, the grant goes back
    unused."""

    async def leave() -> int:
        near = OneTurn(tmp_path)
        await near.link.start(5.0)
        asking = asyncio.create_task(near.link.admit(ask()))
        for _ in range(turns):
            await asyncio.sleep(0)
        if asking.done():
            near.link.put(settled(asking.result().decision, 0), flush=True)
        asking.cancel()
        await asyncio.wait({asking})
        await near.link.admit(ask())  # whatever was on the way has arrived
        await near.link.close()
        return near.actor.stats()["grants"]

    assert asyncio.run(leave()) == 1  # the last one's


def test_the_link_starts_with_an_actor_that_takes_its_time(tmp_path):
    """An actor that isn't there at once is waited for: when `start` returns, asks are answered, and none of the first
    requests runs without a grant."""
    tries: list[int] = []

    async def find() -> NearActor:
        tries.append(1)
        if len(tries) < 4:
            raise TimeoutError("it is being made")
        return NearActor(tmp_path)

    async def start() -> bool:
        link = Link(find, LIMITS)
        await link.start(30.0)
        answer = await link.admit(ask())
        await link.close()
        return isinstance(answer.decision, Grant)

    assert asyncio.run(start())
