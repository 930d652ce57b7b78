"""Batches with keep-alives between them."""

from __future__ import annotations

import asyncio

import pytest

from deployments.wire.stream import paced


async def source(delays, closed):
    try:
        for i, delay in enumerate(delays):
            await asyncio.sleep(delay)
            yield [i]
    finally:
        closed.append(True)


def test_batches_pass_in_order_and_silence_is_marked():
    """Every batch arrives once and in order; None stands where nothing came for the time of silence."""
    closed: list[bool] = []

    async def go():
        return [batch async for batch in paced(source([0, 0.2, 0], closed), 0.05)]

    out = asyncio.run(go())

    assert [batch for batch in out if batch is not None] == [[0], [1], [2]]
    assert None in out
    assert closed == [True]


@pytest.mark.parametrize("delay", [0, 60])
def test_closing_closes_the_source_even_while_it_is_silent(delay):
    """A reader that leaves ends the work behind, at once."""
    closed: list[bool] = []

    async def go():
        batches = paced(source([0, delay], closed), 0.01)
        await anext(batches)
        await batches.aclose()

    asyncio.run(asyncio.wait_for(go(), 5))

    assert closed == [True]


def test_an_error_of_the_source_is_the_reader_s():
    """What the source raises, the reader sees."""

    async def broken():
        yield [1]
        raise RuntimeError("broken")

    async def go():
        return [batch async for batch in paced(broken(), 1)]

    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(go())
