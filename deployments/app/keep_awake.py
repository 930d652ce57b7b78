"""Keep a Mac on mains power from idle sleep: while requests run and `_LINGER_S` longer, always, or never.

Apple's `caffeinate -i -w` holds off idle sleep and ends with this process. Other systems: no-op. Invariants: no
assertion on battery for longer than `_LOOK_S`; none outlives this process; no request waits for it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

import psutil

from deployments.telemetry import log_error, log_info

_When = Literal["requests", "always", "never"]
_LINGER_S = 300.0
_LOOK_S = 60.0
_END_S = 5.0
_CAFFEINATE = "/usr/bin/caffeinate"


def _is_on_mains() -> bool:
    """Return whether the machine takes its power from the mains; one without a battery does."""
    battery = psutil.sensors_battery()
    return battery is None or battery.power_plugged is not False


def _hold_off_sleep() -> subprocess.Popen[bytes]:
    """Hold off idle sleep until it is given up, or this process ends. Raises OSError: the program isn't there."""
    command = [_CAFFEINATE, "-i", "-w", str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class KeepAwake:
    """See the module. All methods belong to one event loop."""

    def __init__(
        self,
        when: _When,
        *,
        system: str = sys.platform,
        on_mains: Callable[[], bool] = _is_on_mains,
        hold: Callable[[], subprocess.Popen[bytes]] = _hold_off_sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._when: _When = when if system == "darwin" else "never"
        self._on_mains, self._hold, self._now_s = on_mains, hold, now_s
        self._held: subprocess.Popen[bytes] | None = None
        self._running = False
        self._last_s = float("-inf")
        self._news = asyncio.Event()

    def note(self, running: bool) -> None:
        """Note that requests run, or that none runs any more."""
        self._running, self._last_s = running, self._now_s()
        if running and self._held is None and self._when == "requests":
            self._news.set()

    async def run(self) -> None:
        """Look when requests begin, and every `_LOOK_S` while there is a reason to hold off sleep, until cancelled."""
        try:
            while True:
                self._news.clear()
                wanted = await self.look()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S if wanted else None):
                        await self._news.wait()
        except Exception as error:  # without it the machine sleeps as it likes
            log_error("sleep_not_held_off", error)
        finally:
            if self._held is not None:
                self._held.terminate()

    async def look(self) -> bool:
        """Hold off sleep, or stop doing so, as things are now; return whether there is a reason to."""
        wanted = self._when == "always"
        if self._when == "requests":
            wanted = self._running or self._now_s() - self._last_s < _LINGER_S
        plugged = wanted and await asyncio.to_thread(self._on_mains)
        if plugged and self._held is None:
            self._held = self._hold()  # not on a thread: cancelled meanwhile, it would be lost
            log_info("sleep_held_off")
        if not plugged and self._held is not None:
            held, self._held = self._held, None
            held.terminate()
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(held.wait, _END_S)
        return wanted
