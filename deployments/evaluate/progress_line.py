"""Where an evaluation stands: one line on a terminal, rewritten; elsewhere a line for each cell."""

from __future__ import annotations

import sys
import time
from typing import TextIO

__all__ = ["ProgressLine"]

WIDTH = 118


class ProgressLine:
    """Says what is done, what runs, and how much time there is."""

    def __init__(self, budget_s: float, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._began_s, self._budget_s = time.monotonic(), budget_s
        self._rewrites = self._out.isatty()

    def show(self, done: int, total: int, what: str) -> None:
        """Show the cell that begins now."""
        used_s = time.monotonic() - self._began_s
        left_s = max(0.0, self._budget_s - used_s)
        line = f"[{done}/{total}] {_take_out_controls(what)} · {_write_clock(used_s)} used, {_write_clock(left_s)} left"
        line = line[:WIDTH]
        end = "\r" if self._rewrites else "\n"
        self._out.write(f"{line:<{WIDTH}}{end}" if self._rewrites else f"{line}{end}")
        self._out.flush()

    def say(self, words: str) -> None:
        """Say something that stays."""
        words = _take_out_controls(words)
        self._out.write(f"{words:<{WIDTH}}\n" if self._rewrites else f"{words}\n")
        self._out.flush()


def _take_out_controls(words: str) -> str:
    """Take out what a terminal would obey: a server names its models as it likes."""
    return "".join(one if one.isprintable() else " " for one in words)


def _write_clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
