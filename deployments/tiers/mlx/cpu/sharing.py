"""Pieces of work that don't touch each other, shared out among threads: the caller's own works too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

__all__ = ["Threads"]


class Threads:
    """So many threads, the caller's among them. What they run lets go of Python's lock, as functions of a C library
    do."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._others = ThreadPoolExecutor(count - 1, "kernels") if count > 1 else None

    def run(self, pieces: Sequence[Callable[[], None]]) -> None:
        """Run all of these, and wait for their end."""
        if self._others is None or len(pieces) < 2:
            for piece in pieces:
                piece()
            return
        todo = iter(pieces)  # one thread takes the next at a time, under Python's own lock

        def work() -> None:
            for piece in todo:
                piece()

        waiting = [self._others.submit(work) for _ in range(min(self.count, len(pieces)) - 1)]
        work()
        for one in waiting:
            one.result()
