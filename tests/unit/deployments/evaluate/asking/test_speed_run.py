"""Speeds, and jobs side by side: all run at once, each result comes as it ends, and nothing waits for who is late."""

import threading

import pytest

from deployments.evaluate.asking.chat_client import ChatClient
from deployments.evaluate.asking.speed_run import _write_prompt, measure_speed, run_side_by_side, warm_up
from tests.support.played_model import PlayedServer, say


def test_all_run_at_the_same_time():
    """Each waits for all others: one after the other they would never end. One alone runs where it is asked for, so
    that Ctrl-C ends it there. What a job raises is raised: nothing is lost on a thread."""
    meeting = threading.Barrier(4, timeout=30)

    def meet(number: int) -> int:
        meeting.wait()
        return number

    found = dict(run_side_by_side([lambda number=number: meet(number) for number in range(4)]))

    assert found == {number: number for number in range(4)}
    assert list(run_side_by_side([threading.current_thread])) == [(0, threading.current_thread())]
    with pytest.raises(ZeroDivisionError):
        list(run_side_by_side([lambda: 1 // 0, lambda: 1]))


def test_results_come_as_they_end_and_nobody_is_waited_for():
    """Whoever stops listening goes on at once, though a job has not ended."""
    never = threading.Event()
    found = run_side_by_side([lambda: never.wait(60), lambda: True])

    assert next(found) == (1, True)
    found.close()
    never.set()


def test_speeds_are_measured_by_length_by_cache_and_together():
    """Each measurement names its tokens and times, and counts what failed. No two prompts begin alike: a cache finds
    nothing of one in another."""
    with PlayedServer({"m": lambda body: say("one two three")}) as server:
        client = ChatClient(server.url)
        assert warm_up(client, "m", within_s=20)["error"] == ""
        asked = (("length", "64-0"), ("cache", "twice"), ("together", "4"))
        length, cache, together = (measure_speed(client, "m", *cell, mark=7, within_s=20) for cell in asked)

    assert length is not None
    assert cache is not None
    assert together is not None
    assert (length["error"], cache["again"]["cached_tokens"], together["failed"]) == ("", 8, 0)
    assert together["tokens_s"] > 0
    assert len({_write_prompt(64, mark).split()[0] for mark in range(50)}) == 50
