"""What a prompt costs that was computed before: `python -m loadtests.prompt_cache_bench [--model SOURCE] [--rounds N]`.

    cold      the first token of a prompt of about 3,000 tokens, in a new process that finds nothing
    next turn the first token of that session's next turn, in the same process
    restart   the first token of the same prompt in another process, which finds it on disk
    damaged   the same with a byte of each file changed: it must be computed, and what was looked at gone

Each round has a folder of its own for prompts and four processes, one after the other; the model's load is not counted.
Times are given by the clock and by the CPU time of the process: on a machine that others use the ratio of the second
says more. Medians of the rounds' ratios. The table stands in README.md, beside the other benchmarks of the engine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path

from deployments.models.sources import CODER_SMALL
from deployments.tiers.mlx import mlx_tier
from deployments.tiers.mlx.mlx_tier import MlxTier
from loadtests.table import Figure, write
from loadtests.tier_loop import PATIENCE_S, request, start_tier
from loadtests.turns import Turns
from reliability.types import ChatRequest, Event, Failed, Finish, Text
from tests.support.tier_asking import text_of

SHARE_S = 900.0
DISK_BYTES = 4 << 30
RULES = 166  # of some eighteen tokens each
QUESTION, NEXT = "Which item does the number of rule 7 stand for?", "And which one does that of rule 8?"
RESTARTED_X, NEXT_TURN_X = 20.0, 40.0


@dataclass(frozen=True, slots=True)
class First:
    """How long the first token of an answer took, by the clock and by the CPU, and what was said."""

    wall_s: float
    cpu_s: float
    prompt_tokens: int
    cached_tokens: int
    text: str


def build_turn(*turns: str) -> ChatRequest:
    """Build a conversation under the long system prompt, greedy."""
    rules = " ".join(f"Rule {n}: the number {n * 7919 % 10007} stands for item {n}." for n in range(RULES))
    return request(*turns, system=rules, max_tokens=16)


async def measure_first(tier: MlxTier, asked: ChatRequest) -> First:
    """Ask, and measure until the first text."""
    began_s, began_cpu_s, seen = time.perf_counter(), time.process_time(), (0.0, 0.0)
    events: list[Event] = []
    async with aclosing(tier.stream(asked)) as stream:
        async for some in stream:
            events += some
            if not any(seen) and any(isinstance(event, Text) for event in some):
                seen = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    last = events[-1]
    assert not isinstance(last, Failed), last
    assert isinstance(last, Finish)
    assert last.usage is not None
    return First(*seen, last.usage.prompt_tokens, last.usage.cached_tokens, text_of(events))


async def live(model: str, folder: Path, threads: int, turns: bool) -> list[First]:
    """Live one life: load the model, ask, with `turns` a second time behind the answer, and end."""
    mlx_tier.default_cache_dir = lambda: folder  # of prompts only: the model's is another module's
    tier = await start_tier(model, blas_threads=threads, prompt_cache_disk_bytes=DISK_BYTES)
    tier._engine._hang_s = PATIENCE_S  # on a busy machine a step may take longer than a replica may
    found = [await measure_first(tier, build_turn(QUESTION))]
    if turns:
        found.append(await measure_first(tier, build_turn(QUESTION, found[0].text, NEXT)))
    await tier.close()
    return found


def live_apart(options: argparse.Namespace, folder: Path, *, turns: bool = False) -> list[First]:
    """Live it in a process of its own."""
    command = [sys.executable, "-m", "loadtests.prompt_cache_bench", "--live", str(folder)]
    command += ["--model", options.model, "--threads", str(options.threads), *(["--turns"] if turns else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return [First(**one) for one in json.loads(done.stdout.splitlines()[-1])]


def digest(folder: Path) -> set[str]:
    """Digest the files that the prompt begins with: those behind a damaged one aren't even looked at."""
    return {hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("prompts/*/s0-*.safetensors")}


def damage(folder: Path) -> list[Path]:
    """Change a byte in the middle of each stored file."""
    files = list(folder.glob("prompts/*/*.safetensors"))
    for path in files:
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
    return files


@dataclass(frozen=True, slots=True)
class Round:
    """What one round measured."""

    cold: First
    turn: First
    again: First
    noticed: bool
    stored_bytes: int


def run_round(options: argparse.Namespace) -> Round:
    """Measure one round."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        cold, turn = live_apart(options, folder, turns=True)
        (again,) = live_apart(options, folder)
        files = damage(folder)
        stored_bytes = sum(path.stat().st_size for path in files)
        bad = digest(folder)
        (damaged,) = live_apart(options, folder)
        noticed = bool(bad) and damaged.cached_tokens == 0 and not bad & digest(folder)
    assert cold.cached_tokens == 0
    assert {again.text, damaged.text} == {cold.text}
    return Round(cold, turn, again, noticed, stored_bytes)


def bench(options: argparse.Namespace, turns: Turns) -> Iterator[Figure]:
    """Compare, round by round."""
    runs = [run_round(options) for _ in turns.rounds("prompt-cache")]
    for what, least, warm in (
        ("first token after a restart, from disk", RESTARTED_X, [run.again for run in runs]),
        ("first token of the next turn, from memory", NEXT_TURN_X, [run.turn for run in runs]),
    ):
        for clock in ("wall_s", "cpu_s"):
            pairs = [(getattr(run.cold, clock), getattr(one, clock)) for run, one in zip(runs, warm, strict=True)]
            ratios = tuple(cold / fast for cold, fast in pairs)
            cold, fast = (statistics.median(side) for side in zip(*pairs, strict=True))
            name = {"wall_s": "the clock", "cpu_s": "the CPU"}[clock]
            held = f"{warm[0].cached_tokens} of {warm[0].prompt_tokens} tokens reused"
            detail = f"{fast:.2f} against {cold:.1f} s, {held}"
            yield Figure(f"{what}, by {name}", detail, statistics.median(ratios), least, rounds=ratios)
    noticed = sum(run.noticed for run in runs)
    stored = f"{runs[0].stored_bytes / 1e6:.0f} MB stored"
    what, detail = "a damaged file is noticed, computed anew and removed", f"{noticed} of {len(runs)}, {stored}"
    yield Figure(what, detail, noticed / len(runs), 1.0)


def main() -> None:
    """Run the rounds and write the table; the exit status says nothing of the bars, the table does."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.prompt_cache_bench")
    parser.add_argument("--model", default=CODER_SMALL)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--live", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--turns", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.live is not None:
        found = asyncio.run(live(options.model, options.live, options.threads, options.turns))
        print(json.dumps([asdict(one) for one in found]))
        return
    figures, turns = [], Turns(options.rounds, SHARE_S)
    for figure in bench(options, turns):
        figures.append(figure)
        print(figure.row(), flush=True)
    command = f"python -m loadtests.prompt_cache_bench --rounds {turns.made} --threads {options.threads}"
    with contextlib.suppress(BrokenPipeError):
        print(write("prompt-cache", command, figures))


if __name__ == "__main__":
    main()
