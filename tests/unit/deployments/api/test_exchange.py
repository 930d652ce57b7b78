"""A bug while a stream is made: before its first frame it is an HTTP error, behind it an error frame."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.exchange import Exchange, _insert_silences
from deployments.api.openai_chat import _ChatWanted
from deployments.api.openai_render import CHAT
from reliability.types import Event, Text
from tests.support.run_values import request_of, run_of


class Client:
    """A client's exchange over a run that breaks after `after` lists of events."""

    def __init__(self, after: int) -> None:
        self.closed = 0
        self.exchange = Exchange(
            dialect=CHAT,
            call=SimpleNamespace(stream=True, wanted=_ChatWanted()),  # type: ignore[arg-type]
            run=run_of(request_of("hi"), tier="fast"),
            events=breaking(after),
            report=dict,
            close=self._close,
            keepalive_s=10.0,
        )

    def _close(self) -> None:
        self.closed += 1


async def breaking(after: int) -> AsyncGenerator[list[Event], None]:
    for _ in range(after):
        yield [Text("word ")]
    raise ZeroDivisionError("a bug")


def test_before_the_first_frame_it_is_an_http_error():
    """No byte has left, so the bug reaches the app's handler, which answers 500; the books are closed."""
    client = Client(after=0)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(client.exchange.respond())

    assert client.closed


async def test_behind_the_first_frame_it_is_an_error_frame():
    """The stream ends with one error that names the server, and without `[DONE]`; the books are closed."""
    client = Client(after=2)
    response: Any = await client.exchange.respond()
    *words, last = [frame async for frame in response.body_iterator]
    error = json.loads(last.removeprefix(b"data: "))["error"]

    assert len(words) == 2
    assert error["code"] == "internal_error"
    assert "bug" not in error["message"]
    assert client.closed


async def source(delays, closed):
    try:
        for i, delay in enumerate(delays):
            await asyncio.sleep(delay)
            yield [i]
    finally:
        closed.append(True)


async def test_batches_pass_in_order_and_silence_is_marked():
    """Every batch arrives once and in order; None stands where nothing came for the time of silence."""
    closed: list[bool] = []
    out = [batch async for batch in _insert_silences(source([0, 0.2, 0], closed), 0.05)]

    assert [batch for batch in out if batch is not None] == [[0], [1], [2]]
    assert None in out
    assert closed == [True]


@pytest.mark.parametrize("delay", [0, 60])
async def test_closing_closes_the_source_even_while_it_is_silent(delay):
    """A reader that leaves ends the work behind, at once."""
    closed: list[bool] = []
    batches = _insert_silences(source([0, delay], closed), 0.01)
    await anext(batches)
    async with asyncio.timeout(5):
        await batches.aclose()

    assert closed == [True]


@given(st.lists(st.integers(0, 2), max_size=12), st.lists(st.integers(0, 3), max_size=12), st.booleans())
def test_every_batch_once_whatever_the_two_sides_do(turns_between, turns_read, breaks):
    """However many turns of the loop the source takes for a batch and the reader for a look at it: each arrives once,
    in order, the source is never more than one ahead, and what it raises at its end comes after its batches."""
    made = 0

    async def source():
        nonlocal made
        for turns in turns_between:
            for _ in range(turns):
                await asyncio.sleep(0)
            made += 1
            yield [made]
        if breaks:
            raise RuntimeError("broken")

    async def go():
        seen = []
        with pytest.raises(RuntimeError, match="broken") if breaks else contextlib.nullcontext():
            async for batch in _insert_silences(source(), 60):
                seen.append(batch)
                assert made <= len(seen) + 1
                for _ in range(turns_read[len(seen) - 1] if len(seen) <= len(turns_read) else 0):
                    await asyncio.sleep(0)
        return seen

    assert asyncio.run(go()) == [[i + 1] for i in range(len(turns_between))]


async def test_a_reader_that_is_cancelled_ends_the_source():
    """While it waits in silence, too."""
    closed, begun = list[bool](), asyncio.Event()

    async def silent():
        try:
            begun.set()
            await asyncio.Event().wait()
            yield [1]
        finally:
            closed.append(True)

    reading = asyncio.ensure_future(anext(_insert_silences(silent(), 30)))
    await begun.wait()
    reading.cancel()
    await asyncio.wait([reading], timeout=5)

    assert closed == [True]
