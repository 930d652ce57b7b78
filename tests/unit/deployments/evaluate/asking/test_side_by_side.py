"""Jobs side by side: all of them run at once, each result is told as it comes, and nothing waits for who is late."""

from __future__ import annotations

import threading

import pytest

from deployments.evaluate.asking.side_by_side import run_side_by_side


def test_all_run_at_the_same_time():
    """Each waits for all others: one after the other they would never end."""
    meeting = threading.Barrier(4, timeout=30)

    def meet(number: int) -> int:
        meeting.wait()
        return number

    found = dict(run_side_by_side([lambda number=number: meet(number) for number in range(4)]))

    assert found == {number: number for number in range(4)}


def test_one_alone_needs_no_thread():
    """It runs where it is asked for, so that Ctrl-C ends it there."""
    assert list(run_side_by_side([threading.current_thread])) == [(0, threading.current_thread())]


def test_results_come_as_they_end_and_nobody_is_waited_for():
    """Whoever stops listening goes on at once, though a job has not ended."""
    never = threading.Event()
    found = run_side_by_side([lambda: never.wait(60), lambda: True])

    assert next(found) == (1, True)
    found.close()
    never.set()


def test_what_a_job_raises_is_raised():
    """Nothing is lost on a thread."""
    with pytest.raises(ZeroDivisionError):
        list(run_side_by_side([lambda: 1 // 0, lambda: 1]))
