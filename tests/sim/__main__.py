"""`python -m tests.sim --seeds N [--start S]`: play many worlds on all cores; print the rate, and the broken laws."""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.sim.world import HEALED_REQUESTS, REQUESTS, Broken, World


def play(seed: int) -> tuple[int, str | None]:
    """One world: its seed, and the law that it broke."""
    try:
        World(seed).play()
    except Broken as broken:
        return seed, str(broken)
    return seed, None


def main() -> int:
    """Exit code 1 where a law is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    arguments = parser.parse_args()
    began, broken = time.monotonic(), []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        seeds = range(arguments.start, arguments.start + arguments.seeds)
        for done, (_, words) in enumerate(pool.map(play, seeds, chunksize=8), 1):
            broken += [words] if words else []
            if done % 100 == 0:
                print(f"\r{done} worlds, {len(broken)} broken", end="", file=sys.stderr, flush=True)
    took_s = time.monotonic() - began
    requests = arguments.seeds * (REQUESTS + HEALED_REQUESTS)
    print(f"\n{arguments.seeds} worlds, {requests} requests in {took_s:.1f} s: {60 * requests / took_s:.0f} a minute")
    for words in broken[:20]:
        print(words)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
