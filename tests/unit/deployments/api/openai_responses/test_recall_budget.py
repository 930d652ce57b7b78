"""Stored conversations in use: bounded together, for each API key, and given back however a request ends."""

import asyncio
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.openai_responses import stored_responses
from deployments.api.openai_responses.stored_responses import KEY_BYTES_MAX, RECALLED_BYTES_MAX, _RecallBudget
from deployments.errors import ApiError

MIB = 1024 * 1024
sizes = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 16 * MIB)), max_size=40)


async def hold(budget: _RecallBudget, key: str, size: int) -> None:
    """One request: it holds its bytes for some turns of the loop."""
    with ExitStack() as ending:
        async with budget.turn(key):
            await budget.reserve(key, size, ending)
        for _ in range(3):
            assert budget.held_bytes <= RECALLED_BYTES_MAX
            assert budget._held[key] <= KEY_BYTES_MAX
            await asyncio.sleep(0)


@given(sizes)
def test_all_are_served_within_the_budget(requests: list[tuple[str, int]]) -> None:
    """Law: however many come at the same time, the bytes in use stay within both bounds, all are served, and nothing
    stays reserved."""

    async def run() -> int:
        budget = _RecallBudget()
        await asyncio.gather(*(hold(budget, key, size) for key, size in requests))
        return budget.held_bytes

    assert asyncio.run(run()) == 0


async def test_a_full_budget_refuses_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a request that finds the budget of its key used up gets a 503 with the limits; another key is served."""
    monkeypatch.setattr(stored_responses, "WAIT_S", 0.01)
    budget = _RecallBudget()
    with ExitStack() as first, ExitStack() as second:
        await budget.reserve("a", KEY_BYTES_MAX, first)
        with pytest.raises(ApiError, match="limit is 64 MiB, and 32 MiB for one API key") as caught:
            await budget.reserve("a", 1, second)
        assert caught.value.code == "overloaded"
        await budget.reserve("b", KEY_BYTES_MAX, second)


async def test_a_request_waits_for_its_turn_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: however many requests of one key come at the same time, each is served or refused within twice `WAIT_S`: the
    places in the Router that they hold are everybody's. The turns come back."""
    monkeypatch.setattr(stored_responses, "WAIT_S", 0.05)

    async def ask(budget: _RecallBudget, at_once: ExitStack) -> str:
        try:
            async with budget.turn("a"):
                await budget.reserve("a", KEY_BYTES_MAX, at_once)
        except ApiError as error:
            return error.code
        return "served"

    budget = _RecallBudget()
    with ExitStack() as ending:
        async with asyncio.timeout(2.0):  # one after the other, four at a time, they would take 5 s
            codes = await asyncio.gather(*(ask(budget, ending) for _ in range(400)))
        assert codes == ["served", *["overloaded"] * 399]
        async with budget.turn("b"):
            pass
    with ExitStack() as ending:
        assert await ask(budget, ending) == "served"
