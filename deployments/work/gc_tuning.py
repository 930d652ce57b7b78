"""Python's cyclic garbage collector in a process that serves for days.

By default it looks for cycles after every 700 new objects and now and then walks through everything. So the objects of
a process that is ready are set aside (Serve does that for replicas), and the collector looks after `NEW_OBJECTS`.
"""

from __future__ import annotations

import gc

NEW_OBJECTS = 20_000


def collect_less() -> None:
    """Look for cycles less often: for a replica, whose beginnings Serve sets aside."""
    gc.set_threshold(NEW_OBJECTS)


def settle_collector() -> None:
    """Set aside what there is, and look less often. Call it once the process is ready."""
    gc.collect()
    gc.freeze()
    collect_less()
