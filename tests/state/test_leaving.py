"""Callers that leave while the hub and a shard decide on their call: whatever was granted goes back, once."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.state.carry import part_of
from deployments.state.client import _both
from deployments.state.link import StateSilent
from deployments.state.records import Answer
from reliability.admission import Grant
from tests.state.test_client import S0, SHARDS, ask, playing, request

TURNS = st.integers(0, 6)


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("who", ["hub", f"{part_of('k', S0, SHARDS)}-of-{SHARDS}"])
def test_a_caller_that_is_cancelled_twice_leaves_nothing_open(tmp_path, who, turns):
    """Whoever leaves while one of the two has answered, and is told again to leave at any turn after that: what was
    granted goes back."""

    async def play(state, actors):
        actors.hanging.add(who)
        asking = asyncio.create_task(request(state).admit(ask()))
        await asyncio.sleep(0.1)
        asking.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        actors.hanging.clear()

    playing(tmp_path, play)


@given(st.tuples(TURNS, TURNS), st.none() | st.integers(0, 1), st.lists(TURNS, max_size=3))
def test_an_answer_is_taken_or_given_back_once(turns, silent, pauses):
    """Whenever the two answer, or one of them fails, and whenever and however often the caller is cancelled: it gets
    both answers, or each that there is goes back exactly once."""
    made: list[Answer] = []
    back: list[Answer] = []

    async def answered(number: int) -> Answer:
        for _ in range(turns[number]):
            await asyncio.sleep(0)
        if number == silent:
            raise StateSilent("away")
        made.append(Answer(decision=Grant(str(number), "fast", False, 1, 1, False, 0, ())))
        return made[-1]

    async def main() -> None:
        caller = asyncio.create_task(_both(answered(0), answered(1), back.append))
        await asyncio.sleep(0)  # it has begun
        for pause in pauses:
            for _ in range(pause):
                await asyncio.sleep(0)
            caller.cancel()
        await asyncio.wait({caller})
        for _ in range(20):
            await asyncio.sleep(0)
        if caller.cancelled() or caller.exception() is not None:
            assert caller.cancelled() or isinstance(caller.exception(), StateSilent)
            assert sorted(each.decision.id for each in back) == sorted(each.decision.id for each in made)
        else:
            assert list(caller.result()) == sorted(made, key=lambda each: each.decision.id)
            assert back == []

    asyncio.run(main())
