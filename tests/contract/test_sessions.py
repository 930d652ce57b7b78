"""Clients that name no session, over a real socket and two Router replicas: whose budget it is, and what a client that
forgets is still told."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import scripts
from tests.support.agent import Agent
from tests.support.http_asking import Outcome, ask, user
from tests.support.serving import Server

SAID = "I have changed the function in app.py, as you have asked."
PER_SESSION = 3_000
SESSION = "x-mlx-stack-session"


@pytest.fixture(scope="module")
def server(deploy):
    rules = [scripts.CALLS, {"answer": SAID}]
    tiers = {name: scripts.scripted(*rules) for name in scripts.TWO}
    budget = {"policy": "hard_stop", "per_session": PER_SESSION, "max_output_tokens": 100}
    return deploy(scripts.graph(tiers, server={"router_replicas": 2}, token_budget=budget), "sessions")


def begin(task: str) -> list[Any]:
    """The fixed example that stands before each conversation."""
    example = {"role": "assistant", "content": "Ok, any changes I propose will be to those files."}
    return [*user("Change get_factorial() to use math.factorial"), example, *user(task)]


def go_on(server: Server, messages: list[Any], words: str, *, stream: bool) -> Outcome:
    messages += [{"role": "assistant", "content": SAID.strip()}, *user(words)]
    return ask(server, messages, stream=stream)


def test_two_runs_that_begin_alike_are_two_sessions(server, stream):
    """Equal first requests and equal answers: two sessions, which stay apart, each with a budget of its own; a third
    run that begins alike once they have ended is a third."""
    one, two = begin(f"A task {stream}."), begin(f"A task {stream}.")
    names = {ask(server, messages, stream=stream).headers[SESSION] for messages in (one, two)}
    assert len(names) == 2

    mine = go_on(server, one, "Now the tests, please.", stream=stream).headers[SESSION]
    other = go_on(server, two, "Now the docs, please.", stream=stream).headers[SESSION]
    assert {mine, other} == names
    for number in range(40):
        outcome = go_on(server, one, f"And number {number}? {'word ' * 40}", stream=stream)
        assert outcome.headers[SESSION] == mine
        if outcome.status != 200:
            break
    assert (outcome.status, outcome.error["code"]) == (400, "budget_exceeded")

    left = go_on(server, two, "Go on.", stream=stream)
    assert (left.status, left.headers[SESSION]) == (200, other)
    third = ask(server, begin(f"A task {stream}."), stream=stream)
    assert (third.status, third.headers[SESSION] in names) == (200, False)


@dataclass
class Forgetful(Agent):
    """An agent that keeps the last two messages."""

    def lap(self) -> Outcome:
        outcome = super().lap()
        del self.messages[:-2]
        return outcome


def test_a_client_that_forgets_is_told_of_its_loop(server, stream):
    """Two messages a request, no session named: nudged at the third repetition and stopped at the fifth."""
    laps = Forgetful(server, f"Forget {stream}.", stream).run(5)

    assert [lap.trail.get("Loop") for lap in laps] == [None, None, "nudged", "nudged", "broken"]
    assert laps[-1].status == 422
    assert len({lap.headers[SESSION] for lap in laps}) == 1


@pytest.mark.parametrize("header", ["X-Claude-Code-Session-Id", "thread-id", "session_id", "x-litellm-session-id"])
def test_the_names_that_clients_send_are_read(server, header):
    """Over a real socket, past every proxy in front: the name comes back."""
    name = f"named-by-{header}"

    assert ask(server, user("Hello."), stream=False, headers={header: name}).headers[SESSION] == name
