"""The matrix library under MLX, held against the one that comes with it and against OpenBLAS as it is.

    python -m loadtests.mlx_bench --only blas
    python -m loadtests.mlx_bench --only alone

A process loads one library, so each side is measured in processes of its own (`python -m loadtests.library_bench
library|alone|tier|plain`), by turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from deployments.models import blas
from loadtests.bare_loop import Bare
from loadtests.table import Figure
from loadtests.tier_loop import decode_by_tier, load_tier
from loadtests.turns import Turns

__all__ = ["bench_alone", "bench_library"]

PATIENCE_S = 900.0


def bench_library(turns: Turns) -> Iterator[Figure]:
    """Compare the libraries, each in processes of its own, by turns: a process loads one library."""
    runs = [(_run_in_process("stock"), _run_in_process("")) for _ in turns.rounds("blas")]
    for index, what, least in ((0, "prefill", 15.0), (1, "decode, batch 8", 5.0)):
        ratio = statistics.median(fast[index] / stock[index] for stock, fast in runs)
        stock, fast = (statistics.median(run[side][index] for run in runs) for side in (0, 1))
        yield Figure(f"{what}, against stock MLX", f"{fast:.1f} against {stock:.1f} tokens/s", ratio, least)


def _run_in_process(which: str) -> tuple[float, float]:
    prefill, batch = _measure_in_process("library", {"MLX_STACK_BLAS": which})
    return prefill, batch


def _measure_in_process(what: str, more: Mapping[str, str]) -> list[float]:
    command = [sys.executable, "-m", "loadtests.library_bench", what]
    environment = {**os.environ, **more}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_library() -> None:
    """Print what one such process measures: prefill and batch-8 decode."""
    bare = Bare()
    slow = os.environ.get("MLX_STACK_BLAS") == "stock"
    bare.prefill(8)
    print(json.dumps([bare.prefill(48 if slow else 384), bare.decode(8, 8 if slow else 32).wall]))


def bench_alone(turns: Turns) -> Iterator[Figure]:
    """Compare one sequence with a bare loop on OpenBLAS as it is: the engine with all that it has, and the bare loop
    with `few_rows_x86_64.so`, which mustn't be slower by it; with one thread and with one for each core; each in a
    process of its own, by turns."""
    for threads in sorted({1, os.cpu_count() or 1}):
        own, more = Turns(turns.most, turns.seconds), {"OPENBLAS_NUM_THREADS": str(threads)}
        runs = [
            [_measure_in_process(side, more)[0] for side in ("alone", "tier", "plain")]
            for _ in own.rounds(f"alone, {threads} threads")
        ]
        words = f"{threads} thread{'s' if threads > 1 else ''}, against a bare loop on OpenBLAS as it is"
        for at, what, least in ((1, "the engine", 2.0), (0, "a bare loop with products of few rows", 1.0)):
            mine, plain = (statistics.median(run[side] for run in runs) for side in (at, 2))
            ratios = tuple(run[at] / run[2] for run in runs)
            detail = f"{mine:.1f} against {plain:.1f} tokens a second"
            yield Figure(f"one sequence, {what}, {words}", detail, statistics.median(ratios), least, rounds=ratios)


def measure_alone(*, plain: bool) -> None:
    """Print the tokens a second of one sequence in a bare loop; `plain`: on OpenBLAS alone."""
    if plain:
        blas._FEW_ROWS.clear()
    bare = Bare()
    bare.decode(1, 8)
    print(json.dumps([bare.decode(1).wall]))


def measure_tier() -> None:
    """Print the tokens a second of one sequence of the engine."""
    tier = load_tier()
    asyncio.run(decode_by_tier(tier, 1))
    print(json.dumps([asyncio.run(decode_by_tier(tier, 1)).wall]))
    asyncio.run(tier.close())


MEASURES: dict[str, Callable[[], None]] = {
    "library": measure_library,
    "alone": partial(measure_alone, plain=False),
    "plain": partial(measure_alone, plain=True),
    "tier": measure_tier,
}

if __name__ == "__main__":
    MEASURES[sys.argv[1]]()
