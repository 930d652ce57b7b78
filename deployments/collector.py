"""Python's cyclic garbage collector in a process that serves for days.

Such a process holds some hundred thousand objects that live as long as it does: modules, classes, Ray's own. The
collector knows nothing of that. It looks for cycles after every 700 new objects, which is several times a request, and
now and then walks through everything while all requests wait. So what is there once a process is ready is set aside
(Ray Serve does that for replicas, this file for the state actor), and the collector looks at what came after less
often. A cycle is freed later: at most `NEW_OBJECTS` objects wait for it.
"""

from __future__ import annotations

import gc

__all__ = ["collect_less", "settle_collector"]

NEW_OBJECTS = 20_000


def collect_less() -> None:
    """Look for cycles less often: for a replica, whose beginnings Serve sets aside."""
    gc.set_threshold(NEW_OBJECTS)


def settle_collector() -> None:
    """Set aside what there is, and look less often. Call it once the process is ready."""
    gc.collect()
    gc.freeze()
    collect_less()
