"""`python -m tests.sim.links --seeds N [--start S]`: play many worlds of links on all cores; print the broken laws."""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.sim.links.world import Broken, World


def play(seed: int) -> tuple[Counter[str], str | None]:
    """One world: what its wire did, and the law that it broke."""
    try:
        return World(seed).play(), None
    except Broken as broken:
        return Counter(), str(broken)


def main() -> int:
    """Exit code 1 where a law is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--start", type=int, default=0)
    arguments = parser.parse_args()
    began, seen, broken = time.monotonic(), Counter[str](), []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        seeds = range(arguments.start, arguments.start + arguments.seeds)
        for fates, words in pool.map(play, seeds, chunksize=8):
            seen += fates
            broken += [words] if words else []
    print(f"{arguments.seeds} worlds in {time.monotonic() - began:.1f} s; calls: {dict(seen)}")
    print(f"{len(broken)} broken")
    for words in broken[:20]:
        print(words)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
