"""The way to the first token, step by step: `python -m loadtests.first_token [--requests 60]`.

One client asks for a stream, again and again, once a hosted tier (the scripted upstream of `loadtests.bench`, on this
machine) and once a local one (SmolLM2-135M; the prompt is the same each time, so that but for its last token it is
reused). `timed_app.py` has the points; a step is from one to the next, and the table has the medians. The first words
of a local tier wait for a decode step, which is the engine's time and no way.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from deployments.config.free_port import free_port
from deployments.models.sources import DEFAULT_SOURCE
from loadtests.first_token.timed_app import POINTS, TIMES
from loadtests.running import (
    build_environment,
    build_serve_config,
    run_process,
    run_upstream,
    short_folder,
    wait_until_up,
)
from loadtests.table import put, stamp

ANSWER_S = 300.0
WARM = 10  # requests whose times say nothing: connections, caches, imports
FIRST, LAST = "the client asks", "the client has the first words"

Way = dict[str, float]  # point: seconds since the client asked


def measure_way(url: str, times: Path, requests: int) -> list[Way]:
    """Ask so often, one after another; return where each request was when."""
    ways: list[Way] = []
    with httpx.Client(timeout=ANSWER_S) as client:
        for _ in range(WARM + requests):
            times.write_text("")
            asked_ns, first_ns = ask(client, url)
            noted = [line.split() for line in times.read_text().splitlines()]
            way = {POINTS[int(point)]: (int(at_ns) - asked_ns) / 1e9 for point, at_ns in noted}
            ways.append({FIRST: 0.0, **way, LAST: (first_ns - asked_ns) / 1e9})
    return ways[WARM:]


def ask(client: httpx.Client, url: str) -> tuple[int, int]:
    """Ask once; return when, and when the first words were here (nanoseconds of the machine's monotonic clock)."""
    messages = [{"role": "user", "content": "at-once: what is in main.py?"}]
    body = {"model": "first", "messages": messages, "stream": True, "max_tokens": 8, "temperature": 0}
    first_ns, asked_ns = 0, time.monotonic_ns()
    with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if not first_ns and '"content":"' in line and '"content":""' not in line:
                first_ns = time.monotonic_ns()
    assert first_ns, "an answer without words"
    return asked_ns, first_ns


def build_rows(ways: list[Way]) -> Iterator[str]:
    """Build a line for each step of the way: the median of its milliseconds, and of those from the beginning."""
    points = [point for point in (FIRST, *POINTS, LAST) if all(point in way for way in ways)]
    for before, point in itertools.pairwise(points):
        step_ms = statistics.median((way[point] - way[before]) * 1000 for way in ways)
        yield f"| {point} | {step_ms:.2f} | {statistics.median(way[point] * 1000 for way in ways):.2f} |"


@contextlib.contextmanager
def run_tier(folder: Path, kind: str) -> Iterator[tuple[str, Path]]:
    """Run the noting server with one tier of this kind; give its URL and the file of the notes."""
    with contextlib.ExitStack() as running:
        tier: dict[str, Any] = {"kind": "mlx", "model": DEFAULT_SOURCE, "blas_threads": os.cpu_count()}
        if kind == "hosted":
            port = free_port()
            running.enter_context(run_upstream(folder, port))
            tier = {"kind": "hosted", "base_url": f"http://127.0.0.1:{port}/v1", "model": "scripted", "cloud": False}
        times = folder / f"times-{kind}"
        port, config = free_port(), folder / "serve.yaml"
        config.write_text(yaml.safe_dump(build_serve_config(port, build_app(tier, folder))), encoding="utf-8")
        program = str(Path(sys.executable).with_name("serve"))
        flags = build_environment(folder) | {TIMES: str(times)}
        pid = running.enter_context(run_process([program, "run", str(config)], folder, flags, stop=signal.SIGINT))
        wait_until_up(f"http://127.0.0.1:{port}/ready", pid)
        yield f"http://127.0.0.1:{port}", times


def build_app(tier: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Build the noting graph with one tier."""
    args = {
        "tiers": {"first": tier},
        "reliability": {"escalation": {"chain": ["first"]}, "token_budget": {"per_session": None, "per_hour": None}},
        "state": {"path": str(folder / "state")},
    }
    return {"name": "first", "import_path": "loadtests.first_token.timed_app:build", "args": args}


def main() -> None:
    """Measure both kinds, and put the table into loadtests/README.md."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.first_token")
    parser.add_argument("--requests", type=int, default=60)
    given = parser.parse_args()
    tables = []
    for kind, words in (("hosted", "a hosted tier on this machine"), ("mlx", "SmolLM2-135M, its prompt reused")):
        with short_folder() as folder, run_tier(folder, kind) as (url, times):
            ways = measure_way(url, times, given.requests)
        head = f"| {words}: until … | ms | in all |\n|---|---|---|"
        tables.append("\n".join([head, *build_rows(ways)]))
        print(tables[-1], flush=True)
    put("first token", "\n\n".join([stamp(f"python -m loadtests.first_token --requests {given.requests}"), *tables]))


if __name__ == "__main__":
    main()
