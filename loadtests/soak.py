"""`make soak`: ten minutes of steady load; memory and open files must be flat, and the journal bounded.

    python -m loadtests.soak --seconds 600

The clients ask like agents: many sessions, with tools and without, streamed and not. Every few seconds the memory (USS,
on macOS RSS) and the open files of each Router, tier and actor are read. After the first fifth (warm-up: pools, caches,
the reports that the state keeps) the slope of a straight line through each series is reported, and must stay under its
bound. The journal has so small a bound that it must be trimmed on the way, and be seen to be.

What is wrong besides: a request that failed; a process that was missing, or another one at the end than at the start; a
run too short to say anything.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import psutil
import yaml

from loadtests.bench.client import Load, Outcome, drive
from loadtests.bench.measure import TOOLS
from loadtests.running import ROOT, Running, handle_end_signals, read_own_bytes, run_server, short_folder
from loadtests.table import put, stamp

MARKS = {
    **{name: f":load:{name}" for name in ("Router", "fast", "standard", "premium")},
    "state": "SessionState",
    "memory monitor": "MemoryPressure",
}
SAMPLE_S = 5.0
README_S = 600.0  # a run of at least so long goes into the README
SESSION_S = 10.0  # a client goes on to another session
WARM = 0.2
POINTS_MIN = 12  # after the warm-up
MIB = 1024 * 1024
MIB_PER_HOUR_MAX = 20.0
FILES_PER_HOUR_MAX = 12.0
JOURNAL_BYTES_MAX = 4 * MIB
# The journal is trimmed now and then, and beside it there is a log of up to its size.
JOURNAL_MIB_MAX = 3 * JOURNAL_BYTES_MAX / MIB
TRIMMED_MIB = 0.5
Series = dict[str, list[tuple[float, float]]]


def sample(server: Running, folder: Path, series: Series, pids: dict[str, set[int]], at_s: float) -> None:
    """Read everything once."""
    for name, mark in MARKS.items():
        for process in server.processes(mark):
            with contextlib.suppress(psutil.Error):
                series[f"{name} MiB"].append((at_s, read_own_bytes(process) / MIB))
                series[f"{name} files"].append((at_s, process.num_fds()))
                pids[name].add(process.pid)
    journal = 0
    for path in (folder / "state").rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # SQLite's own files come and go
            journal += path.stat().st_size
    series["journal MiB"].append((at_s, journal / MIB))


def build_body(client: int, session: int) -> dict[str, Any]:
    """Build what a client asks in one of its sessions."""
    messages = [{"role": "user", "content": f"step {session} of {client}"}]
    tools = {"tools": TOOLS} if session % 2 else {}
    return {
        "model": "auto",
        "messages": messages,
        "user": f"soak-{client}-{session}",
        "stream": client % 2 == 0,
        **tools,
    }


async def run_client(url: str, number: int, until_s: float, all_of_it: Outcome) -> None:
    """Ask, one session after another."""
    session = 0
    while (left_s := until_s - time.monotonic()) > 0:
        session += 1
        load = Load(url=url, body=build_body(number, session), clients=1, seconds=min(SESSION_S, left_s))
        outcome = await drive(load)
        all_of_it.total_ms += outcome.total_ms
        all_of_it.failed += outcome.failed
        for name, count in outcome.faults.items():
            all_of_it.faults[name] = all_of_it.faults.get(name, 0) + count


async def run(
    server: Running, folder: Path, seconds: float, clients: int
) -> tuple[Series, dict[str, set[int]], Outcome]:
    """Run the load and take the readings, side by side."""
    series: Series = defaultdict(list)
    pids: dict[str, set[int]] = defaultdict(set)
    began_s, outcome = time.monotonic(), Outcome()

    async def watch() -> None:
        while (at_s := time.monotonic() - began_s) < seconds:
            await asyncio.to_thread(sample, server, folder, series, pids, at_s)
            await asyncio.sleep(SAMPLE_S)

    until_s = began_s + seconds
    await asyncio.gather(watch(), *(run_client(server.url, n, until_s, outcome) for n in range(clients)))
    return series, pids, outcome


def slope_per_hour(points: Sequence[tuple[float, float]]) -> float | None:
    """Compute the slope of the straight line through the points; None where there are too few."""
    if len(points) < POINTS_MIN:
        return None
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope * 3600


def judge(series: Mapping[str, Sequence[tuple[float, float]]], seconds: float) -> list[tuple[str, str, bool]]:
    """Judge each series: its name, its figures in words, and whether it is as it must be."""
    out = []
    for name in (*(f"{mark} {unit}" for unit in ("MiB", "files") for mark in MARKS), "journal MiB"):
        points = series.get(name, ())
        slope = slope_per_hour([(x, y) for x, y in points if x >= WARM * seconds])
        if slope is None:
            out.append((name, f"{len(points)} readings: too few to say anything", False))
            continue
        most = max(y for _, y in points)
        bound = MIB_PER_HOUR_MAX if name.endswith("MiB") else FILES_PER_HOUR_MAX
        good = most <= JOURNAL_MIB_MAX and _was_trimmed(points) if name == "journal MiB" else slope <= bound
        out.append((name, f"{points[0][1]:.1f} to {points[-1][1]:.1f}, most {most:.1f}, {slope:+.1f} an hour", good))
    return out


def _was_trimmed(points: Sequence[tuple[float, float]]) -> bool:
    """Tell whether a reading is well below an earlier one: a journal that has only grown has shown no bound."""
    sizes = [size for _, size in points]
    return any(before - after >= TRIMMED_MIB for before, after in zip(accumulate(sizes, max), sizes, strict=True))


def build_page(command: str, findings: Sequence[tuple[str, str, bool]], outcome: Outcome) -> str:
    """Build the run's table for the README."""
    rows = [f"| {name} | {words} | {'yes' if good else '**no**'} |" for name, words, good in findings]
    head = ["| what | measured | as it must be |", "|---|---|---|"]
    return "\n".join(
        [stamp(command), "", f"{len(outcome.total_ms)} requests, {outcome.failed} failed.", "", *head, *rows]
    )


def main() -> int:
    """Run, judge, report."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--clients", type=int, default=8)
    given = parser.parse_args()
    handle_end_signals()
    args = yaml.safe_load((ROOT / "loadtests" / "scripted.yaml").read_text(encoding="utf-8"))
    # Each client says the same again and again: no loops are looked for, but in its answers.
    args["reliability"]["loop_detection"] = {"duplicate_threshold": 0, "break_threshold": 0}
    with short_folder() as folder:
        args["state"] = {
            "path": str(folder / "state"),
            "journal_bytes_max": JOURNAL_BYTES_MAX,
            "reports_max": 10**6,
        }
        with run_server(args, folder) as server:
            series, pids, outcome = asyncio.run(run(server, folder, given.seconds, given.clients))
    findings = judge(series, given.seconds)
    for name, words, good in findings:
        print(f"{name}: {words}{'' if good else '  WRONG'}")
    strange = {name: len(pids[name]) for name in MARKS if len(pids[name]) != 1}
    print(json.dumps({"requests": len(outcome.total_ms), "failed": outcome.failed, "faults": outcome.faults}))
    if strange:
        print(f"processes that were missing, or were replaced: {strange}  WRONG")
    if given.seconds >= README_S:
        put("soak", build_page(f"python -m loadtests.soak --seconds {given.seconds:g}", findings, outcome))
    return 1 if strange or outcome.failed or not all(good for _, _, good in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
