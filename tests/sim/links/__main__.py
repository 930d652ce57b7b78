"""`python -m tests.sim.links --seeds N [--start S]`: play many worlds of links on all cores; print the broken laws."""

import sys

from tests.sim.__main__ import main
from tests.sim.links.world import CLIENTS, REQUESTS, World

if __name__ == "__main__":
    sys.exit(main(World, CLIENTS * REQUESTS))
