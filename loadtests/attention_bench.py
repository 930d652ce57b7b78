"""What attention takes on this processor, by MLX and by this server: `python -m loadtests.attention_bench`.

One layer of Qwen2.5-Coder-0.5B (14 heads of 64 on 2 heads of keys), by queries and keys: milliseconds, the median of
several calls, the sides by turns. The table stands in `deployments/tiers/mlx/cpu/attention.py` too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from deployments.models import blas
from deployments.tiers.mlx.cpu.attention import Attention
from deployments.tiers.mlx.cpu.binary import find_features, load_kernels
from deployments.tiers.mlx.cpu.sharing import Threads
from loadtests.mlx_thread import print_and_exit
from loadtests.table import stamp

__all__ = ["main"]

HEADS, KEY_HEADS, SIZE = 14, 2, 64
SHAPES = ((1, 1700), (8, 1700), (24, 1700), (48, 1748), (512, 512), (512, 3000))
CALLS = 9


def measure(sides: dict[str, Callable[..., Any]], queries: int, keys: int) -> dict[str, float]:
    """Measure the milliseconds of each side."""
    import mlx.core as mx

    q = mx.random.normal((1, queries, HEADS, SIZE)).transpose(0, 2, 1, 3)
    k, v = (mx.random.normal((1, KEY_HEADS, keys, SIZE)) for _ in range(2))
    mx.eval(q, k, v)
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(CALLS):
        for name, attend in sides.items():
            began_s = time.perf_counter()
            mx.eval(attend(q, k, v, scale=SIZE**-0.5, mask="causal" if queries > 1 else None))
            taken[name].append(1000 * (time.perf_counter() - began_s))
    return {name: statistics.median(times) for name, times in taken.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.attention_bench")
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads
    blas.preload(threads=threads)
    import mlx.core as mx

    plain = mx.fast.scaled_dot_product_attention
    names = {16: "AVX-512", 8: "AVX2"}
    sides: dict[str, Callable[..., Any]] = {"MLX": plain}
    for kind in load_kernels(find_features()):
        sides[names[kind.floats]] = Attention([kind], Threads(threads), plain, scores_min=0)
    rows = [(queries, keys, measure(sides, queries, keys)) for queries, keys in SHAPES]
    head = f"| queries, keys | {' | '.join(sides)} |"
    lines = [f"| {q}, {k} | {' | '.join(f'{ms:.1f} ms' for ms in found.values())} |" for q, k, found in rows]
    print_and_exit(
        [
            stamp(f"python -m loadtests.attention_bench --threads {threads}"),
            head,
            "|---" * (1 + len(sides)) + "|",
            *lines,
        ]
    )


if __name__ == "__main__":
    main()
