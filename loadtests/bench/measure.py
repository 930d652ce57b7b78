"""One cell of the benchmark: a side under a load for a moment, with the CPU time that its processes used for it."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from loadtests.bench.client import Load, Outcome, drive
from loadtests.bench.sides import MODEL, Side
from loadtests.series import quantile

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} of a file of the project",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "line": {"type": "integer"}},
                "required": ["path"],
            },
        },
    }
    for name in ("read_file", "list_folder")
]
SYSTEM = "You are a careful engineer. " * 20


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is asked: how the upstream should answer, streamed or not, with tools or not."""

    manner: str = "at-once"
    stream: bool = False
    tools: bool = False

    @property
    def name(self) -> str:
        """How it is called in the tables."""
        return " ".join([self.manner, "stream" if self.stream else "whole", *(["tools"] if self.tools else [])])

    def body(self) -> dict[str, Any]:
        """Build the request."""
        asked = f"{self.manner}: what is in main.py?"
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked}]
        more: dict[str, Any] = {"tools": TOOLS} if self.tools else {}
        return {"model": MODEL, "messages": messages, "stream": self.stream, "max_tokens": 256, **more}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What was measured in one round. Milliseconds, of good answers; `calls`: upstream calls per request."""

    side: str
    scenario: str
    clients: int
    requests: int
    failed: int
    faults: Mapping[str, int]
    p50: float
    p95: float
    p99: float
    first_p50: float
    per_second: float
    cpu_ms: float
    calls: float


async def measure_cell(
    side: Side, upstream: str, scenario: Scenario, clients: int, seconds: float, idle: float
) -> Cell:
    """Ask `side` for a while. `idle`: the CPU seconds a second that its processes use when nobody asks."""
    processes, calls = side.processes(), _read_calls(upstream)
    before = _read_cpu_s(processes)
    load = Load(url=side.url, body=scenario.body(), clients=clients, seconds=seconds)
    outcome = await drive(load)
    used_s = _read_cpu_s(processes) - before - idle * outcome.elapsed_s
    asked = len(outcome.total_ms) + outcome.failed
    return _build_cell(side, scenario, clients, outcome, used_s, (_read_calls(upstream) - calls) / max(1, asked))


def _build_cell(side: Side, scenario: Scenario, clients: int, outcome: Outcome, used_s: float, calls: float) -> Cell:
    asked = len(outcome.total_ms) + outcome.failed
    return Cell(
        side=side.name,
        scenario=scenario.name,
        clients=clients,
        requests=asked,
        failed=outcome.failed,
        faults=outcome.faults,
        p50=quantile(outcome.total_ms, 0.5),
        p95=quantile(outcome.total_ms, 0.95),
        p99=quantile(outcome.total_ms, 0.99),
        first_p50=quantile(outcome.first_ms, 0.5),
        per_second=outcome.per_second,
        cpu_ms=max(0.0, used_s) * 1000 / max(1, len(outcome.total_ms)),
        calls=calls,
    )


def measure_idle_cpu(sides: Sequence[Side], seconds: float) -> dict[int, float]:
    """Measure the CPU seconds a second while nobody asks any side, by the root of a side's processes."""
    processes = {pid: side.processes() for pid, side in {side.pid: side for side in sides}.items()}
    before = {pid: _read_cpu_s(found) for pid, found in processes.items()}
    time.sleep(seconds)
    return {pid: (_read_cpu_s(found) - before[pid]) / seconds for pid, found in processes.items()}


def _read_cpu_s(processes: Sequence[psutil.Process]) -> float:
    used = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            used += times.user + times.system
    return used


def _read_calls(upstream: str) -> int:
    with urllib.request.urlopen(f"{upstream}/calls", timeout=10) as response:
        return int(json.load(response)["calls"])
