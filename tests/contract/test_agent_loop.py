"""An agent that goes round in circles, played lap by lap by a real client whose history grows, and one without history.

`fast` repeats its call for ever. `standard` repeats it too until the task says when it has had enough: the three tasks
are `stuck` (never), `fifth` (it leaves at the fifth lap) and `heeds` (`fast` itself leaves when it is told).
"""

from typing import Any

import pytest

from tests.support import scripts
from tests.support.agent import Agent
from tests.support.http_asking import WEATHER_TOOLS, Outcome, ask, incidents_of, report_of, user
from tests.support.serving import Server

NUDGED = "You have called this already"
SAME = "I have looked at everything and there is nothing more that I can do about this."


def rules(tier: str) -> list[dict[str, Any]]:
    leaves = {"fast": {"transcript": "heeds"}, "standard": {"transcript": "fifth", "turn": 5}}[tier]
    return [
        {"when": {"last_user": "Say hello."}, "answer": f"Hello from {tier}."},
        {"when": {"last_user": "question"}, "answer": SAME},
        {"when": {"last_user": "You have said this already", "transcript": "question"}, "answer": SAME},
        {"when": {"last_user": NUDGED} | leaves, "answer": f"{tier} stops here."},
        {"when": {"tool_result": "9 of 9"}, "answer": "All done."},
        scripts.CALLS,
    ]


@pytest.fixture(scope="module")
def server(deploy):
    return deploy(scripts.graph({name: scripts.scripted(*rules(name)) for name in scripts.TWO}), "agent-loop")


FOUND = [None, None, "nudged", "nudged", "broken"]
QUIET = {"Tier": "fast", "Retries": "0", "Attempts": "1"}
# Nudged on its own tier, then the next tier; that one says the same, so it is delivered, marked.
MARKED = {"Tier": "standard", "Escalated-From": "fast", "Escalation-Reason": "loop_detected"}
MARKED |= {"Retries": "2", "Attempts": "3", "Loop": "nudged"}
BROKEN = MARKED | {"Retries": "1", "Attempts": "2", "Loop": "broken"}


def test_the_laps_of_a_stuck_agent(server, stream):
    """Two laps in peace; nudged and marked from the third on, and never stopped by it; the circuit breaks at the fifth,
    with an error that says so. A new message of the user is then answered as if nothing had been."""
    agent = Agent(server, "stuck", stream)
    laps = agent.run(5)

    assert [lap.trail for lap in laps] == [QUIET, QUIET, MARKED, MARKED, BROKEN]
    assert [bool(lap.calls) for lap in laps] == [True] * 4 + [False]
    error = laps[-1].error
    assert (laps[-1].status, error["type"], error["code"], error["retry_after"]) == (422, *["loop_detected"] * 2, 5)
    assert error["message"].startswith("Repeated identical output detected (5x). Consider rephrasing")
    assert laps[-1].headers["x-should-retry"] == "false"

    answer = agent.say("Say hello.")
    assert (answer.text, answer.trail) == ("Hello from fast.", QUIET)


def test_the_fifth_lap_goes_to_the_next_tier(server, stream):
    """The circuit breaks on `fast`, which isn't asked twice; `standard` is told of the loop and leaves it."""
    laps = Agent(server, "fifth", stream).run(9)

    assert [lap.trail.get("Loop") for lap in laps] == FOUND
    assert (laps[-1].text, laps[-1].calls) == ("standard stops here.", [])
    assert laps[-1].trail == BROKEN


def test_a_model_that_heeds_the_nudge_is_left_alone(server, stream):
    """The third lap never comes: the same tier, told of its loop, says something else."""
    laps = Agent(server, "heeds", stream).run(9)

    assert [bool(lap.calls) for lap in laps] == [True, True, False]
    assert laps[-1].text == "fast stops here."
    assert laps[-1].trail == QUIET | {"Retries": "1", "Attempts": "2", "Loop": "nudged"}


def test_a_poller_with_changing_results_is_never_touched(server, stream):
    """The same call nine times, another result each time: no nudge, no mark, no extra call."""
    laps = Agent(server, "poll", stream, tool=lambda lap: f"{lap} of 9 files done").run(12)

    assert [lap.trail for lap in laps] == [QUIET] * 10
    assert laps[-1].text == "All done."


def test_a_changed_result_rearms(server, stream):
    """Two equal laps, another result, two equal laps: nobody has gone round three times."""
    results = ["It rains.", "It rains.", "The sun shines.", "It rains.", "It rains."]
    laps = Agent(server, "weather", stream, tool=lambda lap: results[lap - 1]).run(5)

    assert [lap.trail.get("Loop") for lap in laps[:4]] == [None, None, "nudged", None]


def test_every_marked_lap_leaves_its_incident(server, stream):
    """The incident names the request, the laps and the tools, and nothing of the conversation."""
    lap = Agent(server, "stuck", stream).run(3)[-1]
    told = [i for i in incidents_of(server, lap) if i["kind"] == "loop"]

    assert [i["tier"] for i in told] == ["fast", "fast", "standard"]
    assert {(i["evidence"]["laps"], i["evidence"]["stage"]) for i in told} == {(3, "warn")}
    assert report_of(server, lap)["loop"] == "nudged"
    assert "It rains" not in str(told)


# -- without a history -----------------------------------------------------------------------------------------


def question(server: Server, number: int, session: str, *, stream: bool) -> Outcome:
    return ask(server, user(f"question {number}"), stream=stream, headers={"X-MLX-Stack-Session": session})


def marks(server: Server, outcomes: list[Outcome]) -> list[str | None]:
    """By the reports: the headers of a stream leave with its first word, before it is known to be the same again."""
    return [report_of(server, outcome)["loop"] for outcome in outcomes]


def test_the_same_answer_to_different_requests_is_found_without_a_history(server, stream):
    """The session remembers what it was answered: nudged and marked at the third time, broken at the fifth. So it is in
    a stream: what may be the same again is held until that is known."""
    outcomes = [question(server, n, f"no-history-{stream}", stream=stream) for n in range(5)]

    assert marks(server, outcomes) == FOUND
    assert [outcome.code for outcome in outcomes] == [None] * 4 + ["loop_detected"]
    assert outcomes[-1].status == 422
    assert outcomes[-1].error["retry_after"] == 5
    assert outcomes[-1].ends_as_it_should
    assert [outcome.text for outcome in outcomes[:4]] == [SAME] * 4
    assert report_of(server, outcomes[-1])["retries"] == 1
    hello = ask(server, user("Say hello."), stream=stream, headers={"X-MLX-Stack-Session": f"no-history-{stream}"})
    assert (hello.text, hello.trail) == ("Hello from fast.", QUIET)


NAMES = [
    ({"user": "alice"}, False),
    ({"prompt_cache_key": "overdue-v1"}, False),
    ({"metadata": {"user_id": "u-77"}}, False),
    ({"metadata": {"session_id": "s-1"}}, True),
    ({"metadata": {"user_id": "user_1_account__session_0b9b1b8e-7b0e-4b3a"}}, True),
    ({"user": "bob", "conversation": "c-1"}, True),
]


@pytest.mark.parametrize(("fields", "one_task"), NAMES)
def test_a_batch_under_a_users_name_is_no_loop(server, fields, one_task):
    """Law: under the name of a user or of a prompt, questions that differ in their figures are tasks of their own;
    under that of a session they are one task."""
    outcomes = [ask(server, user(f"question {n}"), stream=False, extra_body=fields) for n in range(5)]

    assert marks(server, outcomes) == (FOUND if one_task else [None] * 5)


@pytest.mark.parametrize("fields", [fields for fields, one_task in NAMES if not one_task])
def test_an_agent_under_a_users_name_is_stopped(server, fields):
    """Law: under any name, requests without a history each of which begins with the one before are one task."""
    fields = {**fields, "seed": 7}
    texts = ["question: why?" + "\nI looked, and saw nothing." * n for n in range(5)]
    outcomes = [ask(server, user(text), stream=False, extra_body=fields) for text in texts]

    assert marks(server, outcomes) == FOUND


@pytest.mark.parametrize("agent", [True, False])
def test_an_agents_side_requests_are_no_loop(server, agent):
    """Law: in a session that has tools, requests with a system prompt and without tools are questions of their own."""
    fields = {"metadata": {"session_id": f"side-{agent}"}}
    ask(server, user("Say hello."), stream=False, tools=WEATHER_TOOLS if agent else [], extra_body=fields)
    system = {"role": "system", "content": "Name the prefix of the command."}
    outcomes = [ask(server, [system, *user(f"question {n}")], stream=False, extra_body=fields) for n in range(5)]

    assert marks(server, outcomes) == ([None] * 5 if agent else FOUND)


def test_the_same_request_may_be_answered_alike(server, stream):
    """A health check that asks the same gets the same, six times, and nobody minds."""
    outcomes = [question(server, 1, f"health-check-{stream}", stream=stream) for _ in range(6)]

    assert [outcome.trail for outcome in outcomes] == [QUIET] * 6


def test_two_sessions_do_not_mix(server, stream):
    """Alternating, each hears the answer twice: neither is in a loop. The third time in one of them is."""
    names = [f"left-{stream}", f"right-{stream}"]
    outcomes = [question(server, n, names[n % 2], stream=stream) for n in range(4)]
    third = question(server, 4, names[0], stream=stream)

    assert marks(server, [*outcomes, third]) == [None] * 4 + ["nudged"]
