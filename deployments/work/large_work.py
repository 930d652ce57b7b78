"""Large pieces of work on one thread, one after the other: `await large(size, function, *args)`.

Work above `QUIET_BYTES` runs on a thread, with short turns (`_SWITCH_S`); callers see to it that no single call into C
is long. Invariant: work never continues on a value that its caller has taken back: a cancelled caller waits for its
end.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol, TypeVar

QUIET_BYTES = 64 * 1024
_SWITCH_S = 0.0005

T = TypeVar("T")


class Large(Protocol):
    """Who runs a piece of work of about so many bytes."""

    async def __call__(self, size: int, work: Callable[..., T], *args: Any) -> T: ...


async def at_once(size: int, work: Callable[..., T], *args: Any) -> T:
    """Do everything here and now: for virtual time."""
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
            while not waiting.done():  # whatever comes
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({waiting})
            waiting.exception()  # nobody wants it any more
        raise


@functools.cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-work")


def _work_in_short_turns(work: Callable[..., T], args: tuple[Any, ...]) -> T:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        return work(*args)
    finally:
        sys.setswitchinterval(before)


_NEW_OBJECTS = 20_000


def collect_less() -> None:
    """Look for cycles less often: for a replica, whose beginnings Serve sets aside."""
    gc.set_threshold(_NEW_OBJECTS)


def settle_collector() -> None:
    """Set aside what there is, and look less often. Call it once the process is ready."""
    gc.collect()
    gc.freeze()
    collect_less()
