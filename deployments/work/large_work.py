"""Large pieces of work beside the event loop: on one thread, one after the other.

    await large(size, function, *args)  ->  what function returns

What a client or a model sends has a bound, and everything that reads it is linear and has its own bounds; but ten
mebibytes of them are half a second, in which an event loop answers nobody else. So a piece above `QUIET_BYTES` runs on
a thread. Python runs one thread at a time and gives the turn to another only every 5 ms, so a request that waits for
the network twenty times would lose 100 ms beside a large piece: while one runs the turns are `SWITCH_S` long.

A call into C code keeps the turn to its end. Whoever hands in work sees to it that no single call is long: JSON of a
bounded number of values, texts of a bounded length.

There is one thread in a process, whoever asks: two large pieces side by side would only slow a third request by as
much again. They come in their order; what is small never waits for them, and runs at once, where it is asked for.

What must never happen: work that goes on on a value which its caller has taken back. So who is cancelled while it runs
waits for its end; work that hasn't begun is dropped.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol, TypeVar

__all__ = ["QUIET_BYTES", "Large", "at_once", "large"]

QUIET_BYTES = 64 * 1024
SWITCH_S = 0.0005

T = TypeVar("T")


class Large(Protocol):
    """Who runs a piece of work of about so many bytes."""

    async def __call__(self, size: int, work: Callable[..., T], *args: Any) -> T:
        """Return what `work(*args)` returns, or raise what it raises."""
        ...


async def at_once(size: int, work: Callable[..., T], *args: Any) -> T:
    """Do everything here and now: for who has the loop to itself, and for virtual time."""
    return work(*args)


async def large(size: int, work: Callable[..., T], *args: Any) -> T:
    """Do what is small here and now, the rest on the thread."""
    if size <= QUIET_BYTES:
        return work(*args)
    job: Future[T] = _thread().submit(_work_in_short_turns, work, args)
    waiting = asyncio.wrap_future(job)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        if not job.cancel():
            await _wait_for_end(waiting)
        raise


async def _wait_for_end(waiting: asyncio.Future[Any]) -> None:
    """Wait for the end, whatever comes."""
    while not waiting.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({waiting})
    waiting.exception()  # nobody wants it any more


@functools.cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-work")


def _work_in_short_turns(work: Callable[..., T], args: tuple[Any, ...]) -> T:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        return work(*args)
    finally:
        sys.setswitchinterval(before)
