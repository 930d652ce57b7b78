"""The limits of the state actor: each life is told them anew, and Routers that differ don't quarrel while they idle."""

from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from deployments.config.app_config import StateConfig
from deployments.state.actor import SessionState
from deployments.state.history import RequestQuery
from deployments.state.records import AnswerItem, KeptResponse, Reply, StateStep, StepAnswer, StepRequest, TurnItem
from reliability.admission.events import Charge
from reliability.admission.request import Grant
from reliability.loops import LoopConfig, Turn
from reliability.loops.transcript import answer_turn, read_turns
from reliability.sessions import describe_answer, read_trail
from tests.support import incarnations
from tests.support.incarnations import LIMITS, Driver, S, ask, done, life, limits, settled, state_of, tight
from tests.support.shrunk_histories import HEAD, SHAPES, ShrunkSession, make_lap

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
    actor = life(tmp_path, clock=incarnations.HandClock())
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
    actor = SessionState(folder=str(tmp_path), bounds=StateConfig(), idle_exit_s=None)
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

    assert actor._now_ns() >= grant.expires_ns - incarnations.CONFIG.budget.reservation_ns
    assert grant.expires_ns > 31 * S


BEGIN: list[dict[str, Any]] = [{"role": "user", "content": "Change get_factorial() to use math.factorial"}]
SAID = "I have changed the function in app.py."
MORE = [*BEGIN, {"role": "assistant", "content": SAID}, {"role": "user", "content": "And the tests?"}]


def nameless(messages: list[dict[str, Any]], ticket: str, **more: Any) -> StepRequest:
    return replace(ask(session="fallback", **more), trail=read_trail(messages), ticket=ticket)


def left(answer: StepAnswer, ticket: str, text: str | None = SAID) -> AnswerItem:
    answered = None if text is None else describe_answer(answer_turn(text))
    return AnswerItem(key="k", session=answer.session or "", ticket=ticket, answered=answered)


def test_what_was_answered_is_heard_before_what_goes_on(tmp_path):
    """An answer and the request that goes on from it may come in one step."""
    driver = Driver(life(tmp_path))
    (a,) = driver.step(requests=(nameless(BEGIN, "a"),))
    (more,) = driver.step(items=(left(a, "a"),), requests=(nameless(MORE, "b"),))

    assert more.session == a.session


def test_a_budget_is_the_session_s(tmp_path):
    """The grant is booked on the session that was found, through whatever Router, not on the name that the Router had
    for it; what begins alike is another session."""
    driver = Driver(life(tmp_path), limits=tight(150))
    (a,) = driver.step(requests=(nameless(BEGIN, "a"),))
    assert isinstance(a.decision, Grant)
    driver.put(settled(a.decision, 90), left(a, "a"))
    (more, other) = Driver(driver.actor, "two", tight(150)).step(requests=(nameless(MORE, "b"), nameless(BEGIN, "c")))

    assert more.session == a.session != other.session
    assert not isinstance(more.decision, Grant)
    assert isinstance(other.decision, Grant)
    assert driver.actor.budget("k", a.session)["spent_tokens"] == 90
    assert driver.actor.budget("k", "fallback")["spent_tokens"] == 0


def test_an_answer_that_nobody_was_asked_for_is_heard(tmp_path):
    """A call that ran while the actor was silent brings its trail with its answer, and its conversation goes on."""
    driver, answered = Driver(life(tmp_path)), describe_answer(answer_turn(SAID))
    driver.put(AnswerItem(key="k", session="fallback", ticket="a", answered=answered, trail=read_trail(BEGIN)))
    (more,) = driver.step(requests=(nameless(MORE, "b"),))

    assert driver.actor.stats()["conversations"] == 1
    assert more.session not in (None, "fallback")


def test_a_new_incarnation_knows_no_conversation(tmp_path):
    """Conversations live in memory: after the actor's death each goes on under a new name, and stays followed."""
    driver = Driver(life(tmp_path))
    (a,) = driver.step(requests=(nameless(BEGIN, "a"),))
    driver.put(left(a, "a"))
    driver = Driver(life(tmp_path), "another")
    (b,) = driver.step(requests=(nameless(MORE, "b"),))
    driver.put(left(b, "b", "I have changed the tests, too."))
    last = [*MORE, {"role": "assistant", "content": "I have changed the tests, too."}, *BEGIN]
    (c,) = driver.step(requests=(nameless(last, "c"),))

    assert b.session != a.session
    assert c.session == b.session


def test_the_window_carries_what_no_request_shows(tmp_path):
    """Through any Router a request is sent what its session was answered, where it shows less than that."""
    actor = life(tmp_path)
    routers = [Driver(actor, f"r{n}") for n in range(2)]
    said: list[dict[str, Any]] = []
    session = ShrunkSession()
    sizes = []
    for number in range(5):
        expected = session.expect(SHAPES["keeps the last 2"](HEAD, said, number))
        request = replace(ask(window=True), complete=expected.shown.complete if expected.shown else 0)
        (answer,) = routers[number % 2].step(requests=(request,))
        assert answer.window is not None
        sizes.append(len(answer.window.kept))
        lap = make_lap(number, "the same")
        turn = read_turns(lap)[0]
        item = TurnItem(key="k", session="s", turn=replace(turn, results=(None,)), shown=expected.shown)
        routers[number % 2].put(item)
        said += lap
    assert sizes == [0, 0, 2, 3, 4]


def test_a_wall_clock_that_stood_ahead_for_a_moment_deletes_nothing(tmp_path, monkeypatch):
    """Law: what Routers date is trimmed and asked for by the same wall clock, also in the next life, so that a clock
    which stood a day ahead for a moment costs no response and dates no report. Counter-case: what is a day old goes."""
    wall_ns, mono_ns = [1_800_000_000 * S], [0]
    monkeypatch.setattr("deployments.state.actor.time.time_ns", lambda: wall_ns[0])
    monkeypatch.setattr("deployments.state.actor.time.monotonic_ns", lambda: mono_ns[0])

    def wait(actor, seconds):
        wall_ns[0] += seconds * S
        mono_ns[0] += seconds * S
        put(actor, "tidies")

    def put(actor, name):
        Driver(actor, f"{name} at {wall_ns[0]}").put(done(name))

    def keep(actor, name):
        actor.keep_response(KeptResponse("k", name, "s", None, wall_ns[0] / S, 10, b"x" * 10))

    actor = life(tmp_path)
    keep(actor, "before")
    wall_ns[0] += 26 * 3600 * S
    put(actor, "r")
    wall_ns[0] -= 26 * 3600 * S
    for number in range(2):
        keep(actor, f"after{number}")
        put(actor, f"r{number}")
        wait(actor, 11)
        actor = life(tmp_path) if number == 0 else actor
        wait(actor, 11)
    newest = actor.browse(RequestQuery(limit=1))[0]

    for name in ("before", "after0", "after1"):
        assert actor.recall_responses("k", name), name
    assert abs(newest["at"] - wall_ns[0] / S) < 60
    wait(actor, 25 * 3600)
    wait(actor, 11)
    assert not actor.recall_responses("k", "after1")
