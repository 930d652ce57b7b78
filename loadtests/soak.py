"""`make soak`: ten minutes of steady load; memory and open files must be flat, and the journal bounded.

    python -m loadtests.soak --seconds 600

Every few seconds the memory (USS) and the open files of the Routers, the tiers and the state actor are read. After the
first fifth (warm-up: pools, caches, the reports that the state keeps) the slope of a straight line through each series
is told, and must stay under its bound.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import psutil
import yaml

from loadtests.bench.client import Load, Outcome, drive
from loadtests.running import ROOT, Running, ends_cleanly, serving

MARKS = {"Router": ":load:Router", "fast": ":load:fast", "standard": ":load:standard", "state": "SessionState"}
SAMPLE_S = 5.0
WARM = 0.2
MIB = 1024 * 1024
MIB_PER_HOUR_MAX = 60.0
FILES_PER_HOUR_MAX = 30.0
JOURNAL_BYTES_MAX = 64 * MIB
Series = dict[str, list[tuple[float, float]]]


def sample(server: Running, folder: Path, series: Series, at_s: float) -> None:
    """One reading of everything."""
    for name, mark in MARKS.items():
        for process in server.processes(mark):
            with contextlib.suppress(psutil.Error):
                series[f"{name} MiB"].append((at_s, process.memory_full_info().uss / MIB))
                series[f"{name} files"].append((at_s, process.num_fds()))
    journal = sum(path.stat().st_size for path in (folder / "state").rglob("*") if path.is_file())
    series["journal MiB"].append((at_s, journal / MIB))


async def run(server: Running, folder: Path, seconds: float, clients: int) -> tuple[Series, Outcome]:
    """Load and readings, side by side."""
    series: Series = defaultdict(list)
    began = time.monotonic()

    async def watch() -> None:
        while time.monotonic() - began < seconds:
            await asyncio.to_thread(sample, server, folder, series, time.monotonic() - began)
            await asyncio.sleep(SAMPLE_S)

    body = {"model": "auto", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    load = Load(url=server.url, body=body, clients=clients, seconds=seconds)
    outcome, _ = await asyncio.gather(drive(load), watch())
    return series, outcome


def slope_per_hour(points: list[tuple[float, float]], seconds: float) -> float:
    """Of the straight line through the points after the warm-up; 0 where there are too few."""
    late = [(x, y) for x, y in points if x >= WARM * seconds]
    if len(late) < 3:
        return 0.0
    return statistics.linear_regression([x for x, _ in late], [y for _, y in late]).slope * 3600


def main() -> int:
    """Run, tell, judge."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--clients", type=int, default=8)
    given = parser.parse_args()
    ends_cleanly()
    args = yaml.safe_load((ROOT / "loadtests" / "scripted.yaml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as name:
        args["state"] = {"path": str(Path(name) / "state"), "journal_bytes_max": JOURNAL_BYTES_MAX}
        with serving(args, Path(name)) as server:
            series, outcome = asyncio.run(run(server, Path(name), given.seconds, given.clients))
    wrong = []
    for what, points in series.items():
        slope = slope_per_hour(points, given.seconds)
        last = points[-1][1]
        bound = MIB_PER_HOUR_MAX if what.endswith("MiB") else FILES_PER_HOUR_MAX
        grew = last > JOURNAL_BYTES_MAX / MIB * 1.5 if what == "journal MiB" else slope > bound
        print(f"{what}: {points[0][1]:.1f} to {last:.1f}, {slope:+.1f} an hour{'  TOO MUCH' if grew else ''}")
        wrong += [what] if grew else []
    print(json.dumps({"requests": len(outcome.total_ms), "failed": outcome.failed, "faults": outcome.faults}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
