"""The inbox of a hosted tier, in virtual time: nothing is lost or reordered, and nobody waits longer than asked."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.hosted.connection import INBOX_BYTES_MAX, Inbox
from tests.sim.clock import run

PAUSES_S = st.lists(st.sampled_from([0.0, 0.001, 0.01, 0.05]), min_size=1, max_size=30)


async def pieces(pauses_s: list[float]) -> AsyncIterator[bytes]:
    for number, pause_s in enumerate(pauses_s):
        await asyncio.sleep(pause_s)
        yield b"%d;" % number


@given(PAUSES_S, st.sampled_from([0.0, 0.03]))
def test_everything_comes_in_order_and_in_time(pauses_s: list[float], window_s: float) -> None:
    """Law: whatever the window, each byte comes once and in order, at most a window after it has arrived; within a
    window there is one answer, and the end is told at once."""

    async def read() -> None:
        loop = asyncio.get_running_loop()
        inbox, got, last_s = Inbox(pieces(pauses_s)), b"", -1.0
        began_s = loop.time()
        while data := await inbox.take(last_s + window_s):
            got += data
            ended = got.count(b";") == len(pauses_s)
            assert ended or loop.time() >= last_s + window_s - 1e-9
            due_s = began_s + sum(pauses_s[: got.count(b";")])
            assert loop.time() <= max(due_s, last_s + window_s) + 1e-9
            last_s = loop.time()
        assert got == b"".join(b"%d;" % number for number in range(len(pauses_s)))
        assert loop.time() <= max(began_s + sum(pauses_s), last_s) + 1e-9
        await inbox.close()

    run(read())


def test_a_full_inbox_holds_the_source_back_and_goes_on() -> None:
    """Law: a window doesn't make it read ahead without bound."""

    async def flood() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * (INBOX_BYTES_MAX // 2)

    async def read() -> None:
        inbox, sizes = Inbox(flood()), []
        while data := await inbox.take(asyncio.get_running_loop().time() + 0.03):
            sizes.append(len(data))
        assert max(sizes) <= INBOX_BYTES_MAX
        assert sum(sizes) == 5 * (INBOX_BYTES_MAX // 2)
        await inbox.close()

    run(read())


def test_what_the_source_raised_comes_after_what_it_gave() -> None:
    """Law: a lost connection takes nothing with it that had arrived."""

    async def broken() -> AsyncIterator[bytes]:
        yield b"first"
        raise ConnectionResetError("gone")

    async def read() -> None:
        inbox = Inbox(broken())
        assert await inbox.take(1.0) == b"first"
        with pytest.raises(ConnectionResetError):
            await inbox.take(2.0)
        assert asyncio.get_running_loop().time() == 0.0
        await inbox.close()

    run(read())
