"""A thread for a benchmark's MLX.

What MLX keeps for a thread needs the interpreter when the thread ends, and what it keeps for the main thread outlives
the interpreter (`deployments/tiers/mlx/engine.py`): both abort the process at its end. So the work is done on a thread
that stays until the process ends.
"""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from collections.abc import Iterable
from typing import NoReturn


def print_and_exit(lines: Iterable[str]) -> NoReturn:
    """Print the lines as they are made, and end the process: with 1 where making them raised."""
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()

    def work() -> None:
        try:
            for line in lines:
                print(line, flush=True)
            ended.put(0)
        except BaseException:
            traceback.print_exc()
            ended.put(1)
        threading.Event().wait()

    threading.Thread(target=work, daemon=True).start()
    sys.exit(ended.get())
