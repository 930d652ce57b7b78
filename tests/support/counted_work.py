"""Work, counted and not timed: how much more a function does with twice as much of something."""

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


class Word(str):
    """A text whose comparisons are work."""

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class Row(list[Any]):
    """A list whose copies are work."""

    def __iter__(self) -> Iterator[Any]:
        for at in range(len(self)):
            yield self[at]


def count_work(do: Callable[[], object]) -> int:
    """Count the steps of the machine in which Python does this, and the signs and members of all that its functions
    return."""
    work, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal work
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            work += 1
        elif event == "return" and isinstance(value, str | bytes | list | tuple):
            work += len(value)
        return trace

    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return work


def measure_growth(prepare: Callable[[int], Callable[[], object]], size: int) -> float:
    """Return how many times the work of `size` is done for twice that size."""
    prepare(3)()  # what is made once is no work of either
    one, two = prepare(size), prepare(2 * size)
    return count_work(two) / count_work(one)
