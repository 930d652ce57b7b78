"""Large work beside the event loop: what it costs the others, and what becomes of it when nobody wants it any more."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from deployments.work.large_work import _NEW_OBJECTS, QUIET_BYTES, large


def _count(until_s: float) -> int:
    count, end = 0, time.perf_counter() + until_s
    while time.perf_counter() < end:
        count += 1
    return count


def test_small_work_is_done_where_it_is_asked_for():
    """What is small costs no thread."""
    assert asyncio.run(large(QUIET_BYTES, threading.get_ident)) == threading.get_ident()
    assert asyncio.run(large(QUIET_BYTES + 1, threading.get_ident)) != threading.get_ident()


async def test_the_loop_turns_while_large_work_runs():
    """Law: a task that wakes up every millisecond does so beside half a second of work."""
    turns, working = 0, asyncio.create_task(large(QUIET_BYTES + 1, _count, 0.5))
    while not working.done():
        await asyncio.sleep(0.001)
        turns += 1

    assert turns > 20
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_what_it_raises_is_raised():
    """An error is the caller's."""
    with pytest.raises(ZeroDivisionError):
        asyncio.run(large(QUIET_BYTES + 1, lambda: 1 / 0))


async def test_who_is_cancelled_waits_for_the_end_of_the_work():
    """Law: nothing works on after its caller has left."""
    begun, done = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        _count(0.2)
        done.set()

    task = asyncio.create_task(large(QUIET_BYTES + 1, work))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()


async def test_work_that_has_not_begun_is_dropped():
    """Law: who leaves the queue costs nothing."""
    ran: list[int] = []
    first = asyncio.create_task(large(QUIET_BYTES + 1, _count, 0.2))
    second = asyncio.create_task(large(QUIET_BYTES + 1, ran.append, 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert not ran


PROGRAM = """
import gc, weakref
from deployments.work.large_work import settle_collector

class Ring:
    def __init__(self):
        self.me = self

before = len(gc.get_objects())
settle_collector()
print(len(gc.get_objects()) < before / 10, gc.get_threshold()[0])

ring = Ring()
gone = weakref.ref(ring)
del ring
kept = [[] for _ in range(2 * gc.get_threshold()[0])]
print(gone() is None)
"""


def test_what_is_there_is_set_aside_and_new_cycles_are_still_found():
    """A settled collector no longer walks through what the process has begun with, looks less often, and frees a cycle
    that was made later once as many objects as its bound have come."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)

    assert ran.stdout.split() == ["True", str(_NEW_OBJECTS), "True"]
