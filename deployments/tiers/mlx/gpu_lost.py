"""A GPU that takes no more work from this process: after a command buffer that timed out, Metal ignores what follows.

Nothing in the process helps then, and a new process has the GPU again. So there is no second try: what runs fails with
`lost`, so that requests go on elsewhere, and the process ends `GRACE_S` later, when that has been told. Serve starts
another replica once it finds this one gone.
"""

from __future__ import annotations

import os
import re
import threading

__all__ = ["end_process", "takes_no_more"]

GRACE_S = 0.5
EXIT_CODE = 70
# Metal's own words for MTLCommandBufferError (tests/mac/assumptions.py).
IGNORED = re.compile(
    r"SubmissionsIgnored|submissions? (?:was |were |is |are )?ignored|Ignored \(for causing", re.IGNORECASE
)
WORDS_MAX = 2000


def takes_no_more(error: BaseException) -> bool:
    """Return whether the GPU ignores all that this process submits."""
    return IGNORED.search(str(error)[:WORDS_MAX]) is not None


def end_process() -> None:
    """End this process soon, without waiting for anything in it; returns at once."""
    clock = threading.Timer(GRACE_S, os._exit, (EXIT_CODE,))
    clock.daemon = True
    clock.start()
