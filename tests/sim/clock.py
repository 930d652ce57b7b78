"""An event loop whose time moves only when everybody waits.

`asyncio` asks its selector to wait until the next timer is due. Here the selector doesn't wait: it moves the clock to
that moment. So a minute of silence costs microseconds, and the order of everything is the same in each run. Where no
timer is due and nothing can happen any more, the program would hang for ever: that is an error here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(Exception):
    """Everybody waits for somebody."""


class _Clockwork:
    """In the place of a selector."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("nothing is due, and somebody still waits")
        self._loop.now_s += timeout
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Timers, tasks and futures; no sockets, no threads, no signals."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._clock_resolution = 1e-9
        self._selector = _Clockwork(self)

    def time(self) -> float:
        return self.now_s

    def _process_events(self, events: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody calls from another thread."""


class VirtualClock:
    """`deployments.request.interfaces.MonotonicClock` on the virtual loop that runs."""

    def now_ns(self) -> int:
        return round(asyncio.get_running_loop().time() * 1e9)


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
