"""Several requests at once, each on a thread of its own; who waits for them can be interrupted.

The threads are daemons and nobody joins them: after Ctrl-C the command ends, whatever a server still owes. One job
alone runs where it is asked for, without a thread.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

__all__ = ["run_side_by_side"]

T = TypeVar("T")


def run_side_by_side(jobs: Sequence[Callable[[], T]]) -> Iterator[tuple[int, T]]:
    """Run the jobs at the same time; yield each one's number and result as they end. What a job raises is raised."""
    if len(jobs) == 1:
        yield 0, jobs[0]()
        return
    ended: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()

    def run(number: int) -> None:
        try:
            ended.put((number, jobs[number](), None))
        except BaseException as error:
            ended.put((number, None, error))

    for number in range(len(jobs)):
        threading.Thread(target=run, args=(number,), name=f"evaluate-{number}", daemon=True).start()
    for _ in jobs:
        number, result, error = ended.get()
        if error is not None:
            raise error
        yield number, result  # type: ignore[misc]
