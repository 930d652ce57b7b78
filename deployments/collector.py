"""Python's cyclic garbage collector in a process that serves for days.

A replica holds some hundred thousand objects that live as long as it does: modules, classes, Ray's own. The collector
knows nothing of that. It looks for cycles after every 700 new objects, which is several times a request, and now and
then walks through everything while all requests wait. So what is there once a process is ready is set aside, and the
collector looks at what came after, less often. A cycle is freed later: at most `NEW_OBJECTS` objects wait for it.
"""

from __future__ import annotations

import gc

__all__ = ["settle_collector"]

NEW_OBJECTS = 20_000


def settle_collector() -> None:
    """Call it once the process is ready; a second call sets aside what came since."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
