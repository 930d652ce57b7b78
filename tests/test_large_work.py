"""Large work beside the event loop: what it costs the others, and what becomes of it when nobody wants it any more."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.work.json_values import has_more_values
from deployments.work.large_work import QUIET_BYTES, large


def _count(until_s: float) -> int:
    """Pure Python work of so many seconds."""
    count, end = 0, time.perf_counter() + until_s
    while time.perf_counter() < end:
        count += 1
    return count


def test_small_work_is_done_where_it_is_asked_for():
    """What is small costs no thread."""
    assert asyncio.run(large(QUIET_BYTES, threading.get_ident)) == threading.get_ident()
    assert asyncio.run(large(QUIET_BYTES + 1, threading.get_ident)) != threading.get_ident()


def test_the_loop_turns_while_large_work_runs():
    """Law: a task that wakes up every millisecond does so beside half a second of work."""

    async def scene() -> int:
        turns, working = 0, asyncio.create_task(large(QUIET_BYTES + 1, _count, 0.5))
        while not working.done():
            await asyncio.sleep(0.001)
            turns += 1
        return turns

    assert asyncio.run(scene()) > 20
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_what_it_raises_is_raised():
    """An error is the caller's."""
    with pytest.raises(ZeroDivisionError):
        asyncio.run(large(QUIET_BYTES + 1, lambda: 1 / 0))


def test_who_is_cancelled_waits_for_the_end_of_the_work():
    """Law: nothing works on after its caller has left."""
    begun, done = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        _count(0.2)
        done.set()

    async def scene() -> None:
        task = asyncio.create_task(large(QUIET_BYTES + 1, work))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done.is_set()

    asyncio.run(scene())


def test_work_that_has_not_begun_is_dropped():
    """Law: who leaves the queue costs nothing."""
    ran: list[int] = []

    async def scene() -> None:
        first = asyncio.create_task(large(QUIET_BYTES + 1, _count, 0.2))
        second = asyncio.create_task(large(QUIET_BYTES + 1, ran.append, 1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)

    asyncio.run(scene())
    assert not ran


JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('ab",[{\\\\é'),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text('k",[{\\\\'), inner, max_size=5),
    max_leaves=40,
)


def _values(value: object) -> int:
    """Commas and opening brackets, counted from the value."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(0, len(inner) - 1) + sum(map(_values, inner))


@given(JSON)
def test_values_are_told_from_the_bytes(value: object):
    """Law: the count of the bytes is that of the value, whatever stands in its texts."""
    for raw in (orjson.dumps(value), json.dumps(value, indent=1).encode()):
        assert not has_more_values(raw, _values(value))
        assert not _values(value) or has_more_values(raw, _values(value) - 1)


@pytest.mark.parametrize("piece", [7, 8, 9, 64])
def test_values_are_told_however_the_pieces_are_cut(piece: int, monkeypatch: pytest.MonkeyPatch):
    """Law: a cut through an escape or a text changes nothing."""
    monkeypatch.setattr("deployments.work.json_values.PIECE_BYTES", piece)
    value = [{"a\\": '\\",["', "b": ["\\\\", '"', "x" * 30]}, "\\" * 9, [1, 2]] * 5
    raw = orjson.dumps(value)
    assert has_more_values(raw, _values(value) - 1)
    assert not has_more_values(raw, _values(value))
