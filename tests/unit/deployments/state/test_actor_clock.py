"""The state actor's clock: the wall clock's time, which never goes back."""

from __future__ import annotations

from deployments.state.actor import SessionState
from deployments.state.journal import JournalBounds
from tests.support.incarnations import CONFIG, Driver, S, ask, life


def test_a_night_of_sleep_is_time(tmp_path, monkeypatch):
    """While a laptop sleeps its monotonic clock stands still: the actor goes on at the wall clock's time, so that what
    was spent yesterday is over, and an incident is dated when it was. A wall clock that is set back moves nothing."""
    at_ns = [1_800_000_000 * S]
    monkeypatch.setattr("deployments.state.actor.time.time_ns", lambda: at_ns[0])
    actor = SessionState(folder=str(tmp_path), bounds=JournalBounds(), windows_max=10, idle_exit_s=None)
    before_ns = actor._now_ns()
    at_ns[0] += 8 * 3600 * S
    after_ns = actor._now_ns()
    at_ns[0] -= 9 * 3600 * S

    assert abs(after_ns - before_ns - 8 * 3600 * S) < 60 * S
    assert actor._now_ns() >= after_ns


def test_a_clock_that_was_set_back_moves_no_book_back(tmp_path, monkeypatch):
    """A life that begins while the wall clock is behind goes on at the journal's last moment."""
    driver = Driver(life(tmp_path))
    (grant,) = driver.granted(ask())
    monkeypatch.setattr("deployments.state.actor.time.time_ns", lambda: 5)
    actor = life(tmp_path)

    assert actor._now_ns() >= grant.expires_ns - CONFIG.budget.reservation_ns
    assert grant.expires_ns > 31 * S
