"""A worker process of Ray that sleeps while nothing happens (figures: docs/decisions/002-idle-costs.md).

The main thread of each worker wakes every 10 ms to look for signals. What the loop calls, `sys.is_finalizing`, is
replaced by a function that rests `_NAP_S` first, while the process is idle; a call through Ray waits for that at most.
Busy, for `_BUSY_CHECKS` looks, is who has computed more since its last look than a look costs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

_NAP_S = 0.15
_BUSY_CHECKS = 5
# One call of an actor's method costs three looks; the cheapest look of late is the measure, for slower machines.
_FACTOR = 3
_MARGIN_NS = 25_000
_RECENT = 64
# Serve's controller: how long it looks often, and how often it looks then.
_START_S = 120.0
_CALM_S = 1.0


class _Napping:
    """The function that takes the place of `sys.is_finalizing`, with its clocks."""

    def __init__(
        self,
        real: Callable[[], bool],
        *,
        sleep: Callable[[float], None] = time.sleep,
        spent_ns: Callable[[], int] = time.thread_time_ns,
        thread: int | None = None,
    ) -> None:
        self._real = real
        self._sleep = sleep
        self._spent_ns = spent_ns
        self._thread = threading.main_thread().ident if thread is None else thread
        self._last_ns = spent_ns()
        self._least_ns = self._coming_ns = 1 << 62
        self._looks = 0
        self._busy = _BUSY_CHECKS

    def __call__(self) -> bool:
        """Rest, where the main thread asks and has nothing to do; return what the real function does."""
        if threading.get_ident() == self._thread and not self._real():
            self._look()
        return self._real()

    def _look(self) -> None:
        cost_ns = self._spent_ns() - self._last_ns
        self._busy = _BUSY_CHECKS if self._is_much(cost_ns) else max(0, self._busy - 1)
        if not self._busy:
            self._sleep(_NAP_S)
        self._last_ns = self._spent_ns()

    def _is_much(self, cost_ns: int) -> bool:
        """Compare with the cheapest look of the last `_RECENT` to twice as many."""
        self._coming_ns = min(self._coming_ns, cost_ns)
        self._looks += 1
        if self._looks % _RECENT == 0:
            self._least_ns, self._coming_ns = self._coming_ns, 1 << 62
        return cost_ns > _FACTOR * min(self._least_ns, self._coming_ns) + _MARGIN_NS


def sleep_while_idle(*_: object) -> None:
    """Let this process rest while it is idle. Calling it again changes nothing."""
    if not isinstance(sys.is_finalizing, _Napping):
        sys.is_finalizing = _Napping(sys.is_finalizing)


def slow_down_later(after_s: float = _START_S) -> None:
    """Let the Serve controller of this process look at its deployments less often, once the start is over."""
    clock = threading.Timer(after_s, _slow_down)
    clock.daemon = True
    clock.start()


def _slow_down() -> None:
    from ray.serve._private import controller

    controller.CONTROL_LOOP_INTERVAL_S = _CALM_S
