"""The limits of the state actor: each life is told them anew, and Routers that differ don't quarrel while they idle."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import pytest

from deployments.state.actor import SessionState
from deployments.state.journal import JournalBounds
from deployments.state.records import Query, Reply, StateStep, TurnItem
from reliability.admission.admit import Grant
from reliability.admission.events import Charge
from reliability.loops import LoopConfig, Turn
from tests.sim.clock import VirtualClock, run
from tests.support.incarnations import (
    CONFIG,
    LIMITS,
    Driver,
    HandClock,
    S,
    ask,
    done,
    life,
    limits,
    settled,
    state_of,
    tight,
)
from tests.support.near_actor import NearActor

SHORT = limits(loops=LoopConfig(window_size=4))


def said(count: int) -> tuple[TurnItem, ...]:
    """So many answers of one session to a client that sends no history."""
    return tuple(TurnItem(key="k", session="s", turn=Turn(text=f"text {n}"), request=f"q{n}") for n in range(count))


def beat(driver: Driver) -> StateStep:
    """A step of this Router that does no work."""
    return StateStep(client=driver.client, number=99, config=driver.limits.digest)


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_every_life_keeps_windows_by_the_configured_limits(tmp_path, deaths):
    """The limits of loops that are configured count in every life of the actor, not in the first alone."""
    driver = Driver(life(tmp_path), limits=SHORT)
    driver.put(*said(1))
    for _ in range(deaths):
        driver.actor = life(tmp_path)
    driver.put(*said(20))

    (answer,) = driver.step(requests=(ask(window=True),))
    assert [each.text for each in answer.window.answers] == [f"text {n}" for n in range(16, 20)]


def test_a_link_tells_a_new_life_its_limits(tmp_path):
    """A Router that works on after a kill has its loop windows kept as it has configured, without any word of its
    own."""

    async def main() -> int:
        near = NearActor(tmp_path, SHORT, call_s=0.001)
        link = near.link
        await link.start(1.0)
        near.actor = life(tmp_path, clock=VirtualClock())
        for each in said(20):
            link.put(each, flush=True)
        answer = await link.admit(ask(window=True))
        assert link.up
        await link.close()
        return len(answer.window.answers)

    assert run(main()) == 4


def test_what_tells_a_new_life_its_limits_moves_no_book(tmp_path):
    """The first step of a life is refused until it brings the limits, also a beat; books, numbers and grants' names go
    on where they were, in that life and in the next."""
    driver = Driver(life(tmp_path))
    held = driver.granted(ask(), ask())
    driver.put(settled(held[0], 30))
    before = state_of(driver.actor)
    names = {grant.id for grant in held}
    for _ in range(3):
        driver.actor = life(tmp_path)
        assert driver.actor.step(beat(driver)) is None
        assert driver.actor.step(beat(driver), LIMITS) is not None
        assert driver.actor.step(beat(driver)) is not None
        assert state_of(driver.actor) == before
        answers = driver.step((Charge(key="k", session="t", tokens=5),), (ask(session="u"),))
        (grant,) = (answer.decision for answer in answers if isinstance(answer.decision, Grant))
        assert grant.id not in names
        names.add(grant.id)
        driver.put(settled(grant, 0))
        before = state_of(driver.actor)
    assert driver.actor.budget("k", "t")["spent_tokens"] == 15
    assert driver.actor.stats()["grants"] == 1


def written(actor: SessionState) -> int:
    """How many rows this life has written."""
    return actor._journal._db.total_changes


def test_idle_routers_under_different_limits_write_nothing(tmp_path):
    """While a new configuration is rolled out and nobody asks anything, beats are answered and the state is left
    alone."""
    actor = life(tmp_path, clock=HandClock())
    routers = Driver(actor, "old", tight(200)), Driver(actor, "new", tight(1000))
    for router in routers:
        router.granted(ask())
    before = written(actor)
    replies = [actor.step(beat(router)) for router in islice(cycle(routers), 20)]

    assert all(isinstance(reply, Reply) for reply in replies)
    assert replies[0].health
    assert written(actor) == before


def test_a_beat_changes_no_limits_but_the_next_step_does(tmp_path: Path) -> None:
    """New limits wait for the first step that does any work, and decide that one."""
    driver = Driver(life(tmp_path), limits=tight(1000))
    driver.granted(ask())
    driver.limits = tight(150)
    assert driver.actor.step(beat(driver)) is not None
    assert driver.actor.budget("k", "s")["windows"]["session"]["tokens_max"] == 1000

    assert driver.granted(ask()) == []
    assert driver.actor.budget("k", "s")["windows"]["session"]["tokens_max"] == 150


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


def test_reports_and_sessions_are_found_by_their_key(tmp_path):
    """A report and a session's totals are shown under their own key, or to whoever may see all keys."""
    driver = Driver(life(tmp_path))
    driver.put(done("r", key="a", tokens=5), done("r", key="b", tokens=7), done("q", key="a", tokens=1))

    assert driver.actor.report("a", "r")["attempts"][0]["usage"]["prompt_tokens"] == 5
    assert driver.actor.report("c", "r") is None
    assert driver.actor.report(None, "r")["attempts"][0]["usage"]["prompt_tokens"] == 7
    totals = driver.actor.session("a", "s")
    assert (totals["requests"], totals["prompt_tokens"], totals["completion_tokens"]) == (2, 6, 2)
    assert totals["last_request_id"] == "q"
    assert driver.actor.session("c", "s") is None


def test_incidents_are_filtered_and_paged(tmp_path):
    """Every field of a query must match; pages go on from an id, the newest first."""
    driver = Driver(life(tmp_path))
    for n in range(10):
        one = done(f"r{n}", session=f"s{n % 2}", incidents=1)
        at = ({**one.incidents[0], "at": 100.0 + n, "tier": f"t{n % 5}"},)
        driver.put(replace(one, incidents=at))

    def found(**more):
        return [one["request_id"] for one in driver.actor.browse(Query(**more))]

    assert found(session="s1") == ["r9", "r7", "r5", "r3", "r1"]
    assert found(session="s1", tier="t2") == ["r7"]
    assert found(since_s=103.0, until_s=105.0) == ["r4", "r3"]
    assert found(kind="other") == found(key="x") == []
    page = driver.actor.browse(Query(limit=3))
    assert [one["request_id"] for one in page] == ["r9", "r8", "r7"]
    assert found(limit=3, before=page[-1]["id"]) == ["r6", "r5", "r4"]
