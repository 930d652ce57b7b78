"""The most memory that the processes of our own server have held, by tier: looked at twice a second.

A replica is known by the title that Ray gives its process. What is counted is what its system counts for it
(`deployments/memory/sensors/process_footprint.py`). What MLX says of itself stands in `/v1/models` (`mlx_peak_bytes`).
Where the server runs elsewhere there is nothing to look at.
"""

from __future__ import annotations

import contextlib
import re
import threading

import psutil

from deployments.memory.sensors.process_footprint import read_footprint

__all__ = ["Footprint"]

EVERY_S = 0.5
TITLE = re.compile(r"ServeReplica:[^:]+:([a-z][a-z0-9_-]*)")


class Footprint:
    """Looks at the family of one process until it is closed. Between looks it does nothing."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._peaks: dict[str, int] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="footprint", daemon=True)
        self._thread.start()

    def close(self) -> dict[str, int]:
        """Stop looking; return the peak bytes of each tier, and of all processes together (`all`)."""
        self._closed.set()
        self._thread.join()
        return dict(self._peaks)

    def _watch(self) -> None:
        while not self._closed.wait(EVERY_S):
            with contextlib.suppress(psutil.Error):
                self._look()

    def _look(self) -> None:
        total = 0
        for process in psutil.Process(self._pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                size_bytes = read_footprint(process.pid) or 0
                total += size_bytes
                title = TITLE.search(" ".join(process.cmdline()))
                if title is not None:
                    self._note(title.group(1), size_bytes)
        self._note("all", total)

    def _note(self, name: str, size_bytes: int) -> None:
        self._peaks[name] = max(self._peaks.get(name, 0), size_bytes)
