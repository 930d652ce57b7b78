"""`make bystander`: what everybody else observes while one client sends whatever it likes.

    python -m loadtests.bystander --seed 1 --cases 100

The server runs as always, with a well tier (`calm`, scripted) and a hosted one whose upstream answers in odd ways
(`hostile_upstream`). A bystander asks the well tier a small question every `EVERY_S`, by the clock and not by the last
answer: a wait can't hide the waits behind it. First nobody else is there, which is the baseline. Then another process
sends the cases of a seeded fuzz (`hostile`, `hostile_answers`), each within `server.body_bytes_max`.

The law: at the 99th percentile the bystander waits at most `BAR_S` longer than at its quiet baseline, over all cases
together and for each kind by itself. The table says for each kind how long its worst wait was; it exits with 1 where
the law doesn't hold, and where a question of the bystander wasn't answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from deployments.config.free_port import free_port
from loadtests.hostile import BODIES, MODEL, SCHEMAS
from loadtests.hostile_answers import ANSWERS
from loadtests.running import handle_end_signals, run_process, run_server, short_folder, wait_until_up
from loadtests.series import quantile
from loadtests.table import put, stamp

EVERY_S = 0.05
BAR_S = 0.25
QUIET_S = 8.0
WARM_S = 2.0
AFTER_S = 0.3  # a stall may begin with the end of a case
PATIENCE_S = 60.0
CASES = len(BODIES) + len(SCHEMAS) + len(ANSWERS)


@dataclass(frozen=True, slots=True)
class Wait:
    """One question of the bystander: when it was due, and how long its answer took from then; `good`: whether there was
    a complete answer."""

    due_s: float
    took_s: float
    good: bool


@dataclass
class Result:
    """What one run has shown. `cases` as `hostile_client` prints them."""

    quiet: list[Wait] = field(default_factory=list)
    beside: list[Wait] = field(default_factory=list)
    cases: list[dict[str, Any]] = field(default_factory=list)

    def of(self, kind: str) -> list[Wait]:
        """Return the waits while cases of this kind were under way."""
        spans = [(one["begun_s"], one["ended_s"] + AFTER_S) for one in self.cases if one["kind"] == kind]
        return [
            wait
            for wait in self.beside
            if any(wait.due_s < end and wait.due_s + wait.took_s > begin for begin, end in spans)
        ]


def draw_kinds(seed: int, cases: int, *, schemas: bool = True) -> list[str]:
    """Draw which kinds come, in which order: each once before one comes again."""
    dice, kinds = random.Random(seed), [*BODIES, *ANSWERS, *(SCHEMAS if schemas else ())]
    deck: list[str] = []
    while len(deck) < cases:
        deck += dice.sample(kinds, len(kinds))
    return deck[:cases]


def build_args(port: int) -> dict[str, Any]:
    """Build the server's `args`."""
    return {
        "tiers": {
            "calm": {"kind": "scripted", "script": [{"answer": "All is well."}]},
            MODEL: {"kind": "hosted", "base_url": f"http://127.0.0.1:{port}/v1", "model": "odd", "cloud": False},
        },
        "reliability": {
            "escalation": {"chain": [MODEL]},
            "token_budget": {"per_session": None, "per_hour": None},
            "tier_health": {"failures_max": None, "rate_percent": None},
            # By script, the bystander gets the same answer each time.
            "retry_budget": {"share_percent": 1000},
        },
        "server": {"max_ongoing_requests": 1024},
    }


async def run_bystander(http: httpx.AsyncClient, until: asyncio.Event, waits: list[Wait]) -> None:
    """Ask by the clock until it is over, and wait for the last answers."""
    asked: set[asyncio.Task[None]] = set()
    due_s, number = time.monotonic(), 0
    while not until.is_set():
        asked.add(task := asyncio.create_task(_ask(http, due_s, number, waits)))
        task.add_done_callback(asked.discard)
        due_s, number = due_s + EVERY_S, number + 1
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
    if asked:
        await asyncio.wait(asked)


async def _ask(http: httpx.AsyncClient, due_s: float, number: int, waits: list[Wait]) -> None:
    body = {"model": "calm", "messages": [{"role": "user", "content": f"question {number}"}], "max_tokens": 16}
    headers = {"x-mlx-stack-session": f"bystander-{number}"}
    try:
        answer = await http.post("/v1/chat/completions", json=body, headers=headers)
        good = answer.status_code == 200 and "All is well." in answer.text
    except httpx.HTTPError:
        good = False
    waits.append(Wait(due_s, time.monotonic() - due_s, good))


async def measure(url: str, seed: int, kinds: Sequence[str], quiet_s: float = QUIET_S) -> Result:
    """Measure the baseline, and then the fuzz beside the bystander."""
    result, limits = Result(), httpx.Limits(max_connections=2000, max_keepalive_connections=100)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, limits=limits, trust_env=False) as http:
        await _run_bystander_for(WARM_S, http, [])
        await _run_bystander_for(quiet_s, http, result.quiet)
        until = asyncio.Event()
        asking = asyncio.create_task(run_bystander(http, until, result.beside))
        command = [sys.executable, "-m", "loadtests.hostile_client", url, str(seed), *kinds]
        client = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            assert client.stdout is not None
            async for line in client.stdout:
                result.cases.append(one := json.loads(line))
                worst_s = max((wait.took_s for wait in result.of(one["kind"])), default=0.0)
                print(f"{worst_s * 1000:6.0f} ms  {one['kind']}: {one['status']}", flush=True)
        finally:
            if client.returncode is None:
                client.kill()
            await client.wait()
            until.set()
            await asking
    return result


async def _run_bystander_for(seconds: float, http: httpx.AsyncClient, waits: list[Wait]) -> None:
    until = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, until.set)
    await run_bystander(http, until, waits)


def find_p99_s(waits: Sequence[Wait]) -> float:
    """Return the 99th percentile: the longest but one in a hundred, so of fewer than a hundred the longest."""
    return quantile([wait.took_s for wait in waits], 0.99) if waits else 0.0


def sum_up(result: Result) -> tuple[str, list[str]]:
    """Return the table, and what is wrong."""
    quiet_s, all_s = find_p99_s(result.quiet), find_p99_s(result.beside)
    wrong = [
        f"a question of the bystander wasn't answered, due at {w.due_s:.1f} s" for w in result.beside if not w.good
    ]
    if all_s > quiet_s + BAR_S:
        wrong.append(f"p99 over all cases is {all_s:.3f} s, {quiet_s:.3f} s when it is quiet")
    rows = []
    for kind in dict.fromkeys(one["kind"] for one in result.cases):
        waits = result.of(kind)
        over = find_p99_s(waits) > quiet_s + BAR_S
        wrong += [f"{kind}: p99 {find_p99_s(waits):.3f} s"] if over else []
        took = max(one["ended_s"] - one["begun_s"] for one in result.cases if one["kind"] == kind)
        answers = ", ".join(sorted({str(one["status"]) for one in result.cases if one["kind"] == kind}))
        worst = max((wait.took_s for wait in waits), default=0.0)
        rows.append((worst, kind, answers, took, len(waits), find_p99_s(waits), over))
    table = "| case | answers | it took | questions | worst wait ms | p99 ms | over the bar |\n"
    table += "|---|---|---|---|---|---|---|\n"
    for worst, kind, answers, took, count, p99, over in sorted(rows, reverse=True):
        table += f"| {kind} | {answers} | {took:.1f} s | {count} | {worst * 1000:.0f} | {p99 * 1000:.0f} | "
        table += f"{'**yes**' if over else 'no'} |\n"
    worst_s = max((wait.took_s for wait in result.beside), default=0.0)
    medians_ms = [1000 * quantile([wait.took_s for wait in waits], 0.5) for waits in (result.beside, result.quiet)]
    head = (
        f"{len(result.cases)} cases, {len(result.beside)} questions beside them: worst wait {worst_s * 1000:.0f} ms,"
        f" p99 {all_s * 1000:.0f} ms, p50 {medians_ms[0]:.0f} ms."
        f" Quiet, {len(result.quiet)} questions: p99 {quiet_s * 1000:.0f} ms,"
        f" p50 {medians_ms[1]:.0f} ms. The bar: p99 at most"
        f" {(quiet_s + BAR_S) * 1000:.0f} ms.\n\n"
    )
    return head + table, wrong


def run(seed: int, kinds: Sequence[str], folder: Path) -> Result:
    """Start everything, measure, end everything."""
    port = free_port()
    with run_process([sys.executable, "-m", "loadtests.hostile_upstream", str(port)], folder):
        wait_until_up(f"http://127.0.0.1:{port}/")
        with run_server(build_args(port), folder) as server:
            return asyncio.run(measure(server.url, seed, kinds))


def main() -> int:
    """Run one seed."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bystander", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--without-schemas", action="store_true")
    parser.add_argument("--kind", action="append", help="these kinds only")
    parser.add_argument("--write", action="store_true", help="put the table into loadtests/README.md")
    given = parser.parse_args()
    handle_end_signals()
    kinds = given.kind or draw_kinds(given.seed, given.cases, schemas=not given.without_schemas)
    with short_folder() as folder:
        result = run(given.seed, kinds, folder)
    text, wrong = sum_up(result)
    print(f"seed {given.seed}\n\n{text}")
    if given.write:
        command = f"python -m loadtests.bystander --seed {given.seed} --cases {len(kinds)}"
        put("bystander", f"{stamp(command)}\n\n{text}")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
