"""The state actor finds the sessions of requests that name none, whichever Router they come through."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from deployments.state.records import AnswerItem, StepAnswer, StepRequest, TurnItem
from reliability.admission.admit import Grant
from reliability.loops.transcript import answer_turn, read_turns
from reliability.sessions import describe_answer, read_trail
from tests.support.incarnations import Driver, ask, life, settled, tight
from tests.support.made_agents import MadeRun, make_answer, make_run
from tests.support.shrunk_histories import HEAD, SHAPES, ShrunkSession, make_lap

BEGIN: list[dict[str, Any]] = [{"role": "user", "content": "Change get_factorial() to use math.factorial"}]
SAID = "I have changed the function in app.py."
MORE = [*BEGIN, {"role": "assistant", "content": SAID}, {"role": "user", "content": "And the tests?"}]


def nameless(messages: list[dict[str, Any]], ticket: str, **more: Any) -> StepRequest:
    return replace(ask(session="fallback", **more), trail=read_trail(messages), ticket=ticket)


def left(answer: StepAnswer, ticket: str, text: str | None = SAID) -> AnswerItem:
    answered = None if text is None else describe_answer(answer_turn(text))
    return AnswerItem(key="k", session=answer.session or "", ticket=ticket, answered=answered)


def test_a_conversation_is_one_session_over_all_routers(tmp_path):
    """What one Router was answered, another one's request goes on from; what begins alike is another session."""
    actor = life(tmp_path)
    one, two = Driver(actor, "one"), Driver(actor, "two")
    (a,) = one.step(requests=(nameless(BEGIN, "a"),))
    (b,) = two.step(requests=(nameless(BEGIN, "b"),))
    assert None not in (a.session, b.session)
    assert a.session != b.session
    one.put(left(a, "a"))
    (more,) = two.step(requests=(nameless(MORE, "c"),))
    assert more.session == a.session


def test_what_was_answered_is_heard_before_what_goes_on(tmp_path):
    """An answer and the request that goes on from it may come in one step."""
    driver = Driver(life(tmp_path))
    (a,) = driver.step(requests=(nameless(BEGIN, "a"),))
    (more,) = driver.step(items=(left(a, "a"),), requests=(nameless(MORE, "b"),))

    assert more.session == a.session


def test_a_budget_is_the_session_s(tmp_path):
    """The grant is booked on the session that was found, not on the name that the Router had for it."""
    driver = Driver(life(tmp_path), limits=tight(150))
    (a,) = driver.step(requests=(nameless(BEGIN, "a"),))
    assert isinstance(a.decision, Grant)
    driver.put(settled(a.decision, 90), left(a, "a"))
    (more, other) = driver.step(requests=(nameless(MORE, "b"), nameless(BEGIN, "c")))

    assert not isinstance(more.decision, Grant)
    assert isinstance(other.decision, Grant)
    assert driver.actor.budget("k", a.session)["spent_tokens"] == 90
    assert driver.actor.budget("k", "fallback")["spent_tokens"] == 0


def test_a_step_that_comes_again_finds_the_same_session(tmp_path):
    """A Router that got no answer asks again under the same ticket: no second session is made."""
    driver = Driver(life(tmp_path))
    (a,) = driver.step(requests=(nameless(BEGIN, "a"),))
    (again,) = driver.step(requests=(nameless(BEGIN, "a"),), attempt=1)

    assert (again.session, driver.actor.stats()["conversations"]) == (a.session, 1)


def test_an_answer_that_nobody_was_asked_for_is_heard(tmp_path):
    """A call that ran while the actor was silent brings its trail with its answer, and its conversation goes on."""
    driver = Driver(life(tmp_path))
    item = AnswerItem(
        key="k", session="fallback", ticket="a", answered=describe_answer(answer_turn(SAID)), trail=read_trail(BEGIN)
    )
    driver.put(item)
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


@pytest.mark.parametrize("seed", range(5))
def test_runs_at_once_are_apart_over_routers(tmp_path, seed):
    """Equal beginnings, through any Router: as many sessions as runs."""
    dice = random.Random(seed)
    actor = life(tmp_path)
    routers = [Driver(actor, f"r{n}") for n in range(3)]
    first = make_run(0, dice)
    first.habit = "all"
    runs: list[MadeRun] = [first, *(make_run(n, dice, first) for n in range(1, 5))]
    names: dict[int, set[str]] = {run.number: set() for run in runs}
    for number in range(40):
        run = runs[number] if number < len(runs) else dice.choice(runs)
        answer = make_answer(run, f"{seed}.{number}")
        if run.answers == 0:  # an opening of its own: what is equal to the letter nobody can tell apart
            answer = {"role": "assistant", "content": f"I am run number {run.number} of these."}
        ids = [call["id"] for call in answer.get("tool_calls") or ()]
        (found,) = dice.choice(routers).step(requests=(nameless(run.request(), f"t{number}"),))
        names[run.number].add(found.session or "")
        item = AnswerItem(
            key="k",
            session=found.session or "",
            ticket=f"t{number}",
            answered=describe_answer(answer_turn(answer), ids),
        )
        dice.choice(routers).put(item)
        run.take(answer)

    assert [len(of_run) for of_run in names.values()] == [1] * 5
    assert len(set().union(*names.values())) == 5


def test_the_window_carries_what_no_request_shows(tmp_path):
    """Through any Router a request is sent what its session was answered, where it shows less than that."""
    actor = life(tmp_path)
    routers = [Driver(actor, f"r{n}") for n in range(2)]
    said: list[dict[str, Any]] = []
    session = ShrunkSession()
    sizes = []
    for number in range(5):
        expected = session.expect(SHAPES["keeps the last 2"](HEAD, said, number))
        request = replace(ask(window=True), complete=expected.complete)
        (answer,) = routers[number % 2].step(requests=(request,))
        assert answer.window is not None
        sizes.append(len(answer.window.kept))
        lap = make_lap(number, "the same")
        turn = read_turns(lap)[0]
        item = TurnItem(key="k", session="s", turn=replace(turn, results=(None,)), shown=expected.shown)
        routers[number % 2].put(item)
        said += lap
    assert sizes == [0, 0, 2, 3, 4]
