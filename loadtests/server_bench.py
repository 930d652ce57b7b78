"""This server against `mlx_lm.server`, as clients see both: over HTTP, streamed, on the same model and prompts.

    python -m loadtests.mlx_bench --only server

Both run beside each other, each with one model in float32, and take turns; theirs computes with MLX as it comes, on one
thread, ours with this server's extension and a thread for each core: 1, 4 and 8 clients at once, each with a prompt of
its own that neither has seen. Ours is the whole graph (Ray Serve's proxy, Router, checks, tier), theirs one process.
While theirs is measured, Ray's idle processes take some per cent of a core: that much the figures favour ours.

All clients of a turn are threads of one process, which read lines and count nothing but time; tokens are the server's
own word (`usage` of the last chunk).
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from deployments.config.free_port import free_port
from deployments.models.artifact import resolve
from deployments.models.sources import DEFAULT_SOURCE, parse_source
from loadtests.running import run_server, short_folder
from loadtests.series import quantile
from loadtests.table import Figure
from loadtests.turns import Turns

CLIENTS = (1, 4, 8)
TOKENS = 48
START_S, ANSWER_S = 300.0, 300.0
STORY = "Write a long story about {0} and {1} who live at the edge of a forest, and what they did in the year {2}."
HEROES = ("a fox", "two owls", "a miller", "the twins", "a giant", "an old king", "seven mice", "a sailor")

Seen = tuple[float, list[float]]  # tokens a second, and each client's seconds to its first text


def bench_server(turns: Turns) -> Iterator[Figure]:
    """Compare the tokens a second of all clients together, and the 95th percentile of the times to the first text."""
    runs: dict[int, list[tuple[Seen, Seen]]] = {count: [] for count in CLIENTS}
    with (
        short_folder() as folder,
        run_theirs(folder) as other,
        run_ours(folder) as mine,
    ):
        for count in (1, CLIENTS[-1]):
            for url in (mine, other):
                ask_together(url, count, f"warm {count}")
        for number in turns.rounds("server"):
            for count in CLIENTS:
                runs[count].append((ask_together(mine, count, str(number)), ask_together(other, count, str(number))))
    for count, pairs in runs.items():
        yield from build_figures(count, pairs)


def build_figures(count: int, pairs: list[tuple[Seen, Seen]]) -> Iterator[Figure]:
    """Build the two figures of so many clients."""
    mine, other = (statistics.median(pair[side][0] for pair in pairs) for side in (0, 1))
    ratio = statistics.median(a[0] / b[0] for a, b in pairs)
    yield Figure(f"{count} clients, tokens a second", f"{mine:.1f} against {other:.1f}", ratio, 1.0)
    first, theirs_first = (quantile([s for pair in pairs for s in pair[side][1]], 0.95) for side in (0, 1))
    detail = f"{first:.2f} s against {theirs_first:.2f} s"
    yield Figure(f"{count} clients, first text, 95th percentile, theirs / ours", detail, theirs_first / first, 1.0)


def ask_together(url: str, count: int, word: str) -> Seen:
    """Ask as all clients at once."""
    with ThreadPoolExecutor(count) as pool, httpx.Client(timeout=ANSWER_S) as client:
        began_s = time.perf_counter()
        ends = list(pool.map(lambda n: ask(client, url, n, word), range(count)))
        spent_s = time.perf_counter() - began_s
    return sum(tokens for tokens, _ in ends) / spent_s, [first_s for _, first_s in ends]


def ask(client: httpx.Client, url: str, number: int, word: str) -> tuple[int, float]:
    """Return the tokens of one streamed answer, and the seconds to its first text."""
    prompt = STORY.format(HEROES[number], HEROES[(number + 3) % len(HEROES)], f"{word} {number}")
    body = {
        "model": "default_model",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "user": f"client {number} {word}",
    }
    began_s, first_s, tokens = time.perf_counter(), 0.0, 0
    with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            frame = json.loads(line[6:])
            has_text = any(choice.get("delta", {}).get("content") for choice in frame.get("choices") or [])
            first_s = first_s or (time.perf_counter() - began_s if has_text else 0.0)
            tokens = (frame.get("usage") or {}).get("completion_tokens", tokens)
    assert tokens, "an answer without usage"
    return tokens, first_s


@contextlib.contextmanager
def run_theirs(folder: Path) -> Iterator[str]:
    """Run `mlx_lm.server` on a port of its own."""
    port = free_port()
    model = str(resolve(parse_source(DEFAULT_SOURCE)).path)
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", model, "--port", str(port), "--log-level", "ERROR"]
    with (folder / "mlx_lm.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for_answer(f"{url}/v1/models", process)
            yield url
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def run_ours(folder: Path) -> Iterator[str]:
    """Run the graph with one tier, started as `make serve` starts it."""
    tier = {"kind": "mlx", "model": DEFAULT_SOURCE, "blas_threads": os.cpu_count()}
    args: dict[str, Any] = {
        "tiers": {"fast": tier},
        "reliability": {"escalation": {"chain": ["fast"]}},
        "server": {"aliases": {"default_model": "fast"}},
    }
    with run_server(args, folder) as running:
        yield running.url


def wait_for_answer(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until it answers well."""
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        assert process.poll() is None, "the server has ended"
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url, timeout=10.0).is_success:
                return
        time.sleep(0.2)
    raise AssertionError(f"{url} did not answer within {START_S:.0f} s")
