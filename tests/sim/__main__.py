"""`python -m tests.sim --seeds N [--start S]`: play many worlds on all cores; print the rate, and the broken laws."""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from tests.sim.world import HEALED_REQUESTS, REQUESTS, Broken, World


def play(kind: type[Any], seed: int) -> tuple[Any, str | None]:
    """One world: what its play returned, and the law that it broke."""
    try:
        return kind(seed).play(), None
    except Broken as broken:
        return None, str(broken)


def main(kind: type[Any] = World, requests_each: int = REQUESTS + HEALED_REQUESTS) -> int:
    parser = argparse.ArgumentParser(description="Play many worlds on all cores; print the rate, and the broken laws.")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    arguments = parser.parse_args()
    began, seen, broken = time.monotonic(), Counter[str](), []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        seeds = range(arguments.start, arguments.start + arguments.seeds)
        for done, (played, words) in enumerate(pool.map(partial(play, kind), seeds, chunksize=8), 1):
            seen += played if isinstance(played, Counter) else Counter()
            broken += [words] if words else []
            if done % 100 == 0:
                print(f"\r{done} worlds, {len(broken)} broken", end="", file=sys.stderr, flush=True)
    took_s = time.monotonic() - began
    requests = arguments.seeds * requests_each
    print(f"\n{arguments.seeds} worlds, {requests} requests in {took_s:.1f} s: {60 * requests / took_s:.0f} a minute")
    for words in [*([f"calls: {dict(seen)}"] if seen else []), *broken[:20]]:
        print(words)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
