"""Where the time of a request goes: the CPU time that each process of a side uses while it alone is asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path

import psutil

from loadtests.bench.client import Load, drive
from loadtests.bench.measure import Scenario
from loadtests.bench.sides import Side

SHOWN_MS = 0.05


def measure_shares(side: Side, scenario: Scenario, clients: int, seconds: float) -> dict[str, float]:
    """Measure the CPU milliseconds a request by the process that used them, most first; what idling takes is in it."""
    before = _read_cpu_by_title(side)
    load = Load(url=side.url, body=scenario.body(), clients=clients, seconds=seconds)
    outcome = asyncio.run(drive(load))
    spent = _read_cpu_by_title(side)
    spent.subtract(before)
    asked = max(1, len(outcome.total_ms))
    found = {name: used_s * 1000 / asked for name, used_s in spent.most_common()}
    shown = {name: used_ms for name, used_ms in found.items() if used_ms >= SHOWN_MS}
    return shown | {"all others": sum(found.values()) - sum(shown.values())}


def _read_cpu_by_title(side: Side) -> Counter[str]:
    """Read the CPU seconds so far, by the process's own title."""
    used: Counter[str] = Counter()
    for process in side.processes():
        with contextlib.suppress(psutil.Error):
            times, command = process.cpu_times(), process.cmdline()
            title = command[0].split()[0] if command else process.name()
            if title.startswith("/"):  # a program: by its file's name
                title = Path(title).name
            used[title] += times.user + times.system
    return used
