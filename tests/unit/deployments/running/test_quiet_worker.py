"""A worker's main thread rests while it is idle, and never while it has something to do."""

import sys
import threading

import pytest
from ray.serve._private import controller

from deployments.running import quiet_worker
from deployments.running.quiet_worker import _BUSY_CHECKS, _NAP_S, _RECENT, _Napping, sleep_while_idle, slow_down_later

LOOK_NS, CALL_NS = 60_000, 260_000


class Loop:
    """Ray's loop: it looks for signals every now and then, and computes between two looks."""

    def __init__(self) -> None:
        self.spent_ns, self.naps, self.ending = 0, [], False
        self.asked = _Napping(
            lambda: self.ending, sleep=self.naps.append, spent_ns=lambda: self.spent_ns, thread=threading.get_ident()
        )

    def turn(self, spent_ns: int = LOOK_NS) -> int:
        """One turn, which has cost so much; return how often it rested."""
        before = len(self.naps)
        self.spent_ns += spent_ns
        assert self.asked() is self.ending
        return len(self.naps) - before

    def settle(self) -> None:
        """Turns until it rests."""
        for _ in range(2 * _BUSY_CHECKS):
            self.turn()
        assert self.turn() == 1


def test_an_idle_thread_rests_at_each_look() -> None:
    """Law: after a few looks without work each look rests once, for `_NAP_S`."""
    loop = Loop()
    loop.settle()
    assert [loop.turn() for _ in range(100)] == [1] * 100
    assert set(loop.naps) == {_NAP_S}


def test_a_thread_with_work_doesn_t_rest() -> None:
    """Law: a look that follows a call of an actor's method doesn't rest, nor do the next ones; then it rests again."""
    loop = Loop()
    loop.settle()
    assert loop.turn(CALL_NS) == 0
    assert [loop.turn() for _ in range(_BUSY_CHECKS + 1)] == [0] * (_BUSY_CHECKS - 1) + [1] * 2


@pytest.mark.parametrize("factor", [0.2, 1, 10])
def test_slow_and_fast_machines_are_measured_by_themselves(factor: float) -> None:
    """Law: what a look costs is learned, also where it becomes dearer later; work stays visible above it."""
    loop = Loop()
    loop.settle()
    look_ns, call_ns = int(LOOK_NS * factor), int(LOOK_NS * factor) * 4 + 50_000
    for _ in range(3 * _RECENT):
        loop.turn(look_ns)
    assert loop.turn(look_ns) == 1
    assert loop.turn(call_ns) == 0


def test_other_threads_and_the_end_are_answered_at_once() -> None:
    """Law: only the main thread rests, and not once the interpreter ends."""
    loop = Loop()
    loop.settle()
    naps = len(loop.naps)
    other = threading.Thread(target=loop.asked)
    other.start()
    other.join()
    loop.ending = True
    loop.turn()
    assert len(loop.naps) == naps


def test_it_is_put_in_place_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a second time changes nothing, and what Python says stays what it says."""
    real = sys.is_finalizing
    monkeypatch.setattr(sys, "is_finalizing", real)
    sleep_while_idle()
    first = sys.is_finalizing
    sleep_while_idle("ignored")
    assert sys.is_finalizing is first
    assert isinstance(first, _Napping)
    assert first() is False


def test_the_controller_looks_less_often_after_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: the interval that Serve's controller reads in each round changes once its start is over; this Ray has it."""
    monkeypatch.setattr(controller, "CONTROL_LOOP_INTERVAL_S", controller.CONTROL_LOOP_INTERVAL_S)
    begun = threading.Event()
    monkeypatch.setattr(quiet_worker, "_slow_down", lambda real=quiet_worker._slow_down: (real(), begun.set()))
    assert controller.CONTROL_LOOP_INTERVAL_S < quiet_worker._CALM_S
    slow_down_later(0.0)
    assert begun.wait(30)
    assert controller.CONTROL_LOOP_INTERVAL_S == quiet_worker._CALM_S
