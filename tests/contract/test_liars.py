"""Upstreams that say what can't be, over a real socket: of their tokens, and in chunks that nobody can read."""

import json
from typing import Any

import pytest

from tests.support import plays, scripts
from tests.support.client_load import PATIENT, Ledger
from tests.support.http_asking import WEATHER_TOOLS, ask, incidents_of, report_of, user
from tests.support.matrices import STREAMS, take_turns
from tests.support.plays import SSE, Head, Play, Send
from tests.support.serving import Server, until

TEXT = "A short answer of some words."
PROMPT_TOKENS_MAX = 64
HUGE = 10**15


@pytest.fixture(scope="module")
def server(deploy, upstream):
    tiers = {"liar": scripts.hosted(upstream, "liar"), "honest": scripts.tier("honest")}
    budget = {"per_session": 50_000, "policy": "hard_stop"}
    return deploy(scripts.graph(tiers, retries=0, timeouts=PATIENT, token_budget=budget), "liars")


def spent(server: Server, session: str) -> int:
    ledger = Ledger(server, session)
    until(lambda: ledger.now().get("requests"), "the request is written down")
    return int(until(ledger.settled, "it is settled")["spent_tokens"])


# What an upstream reports beside `TEXT`, and whether that is a lie that is worth an incident.
REPORTS: dict[str, tuple[Any, bool]] = {
    "both": ({"prompt_tokens": HUGE, "completion_tokens": HUGE * 1000, "total_tokens": HUGE}, True),
    "prompt": ({"prompt_tokens": HUGE, "completion_tokens": 7}, True),
    "completion": ({"prompt_tokens": 11, "completion_tokens": HUGE}, True),
    "total": ({"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": HUGE}, True),
    "reasoning": (
        {"prompt_tokens": 11, "completion_tokens": HUGE, "completion_tokens_details": {"reasoning_tokens": HUGE}},
        True,
    ),
    "infinite": ({"prompt_tokens": 1e300, "completion_tokens": 1e300}, True),
    "cached": ({"prompt_tokens": 11, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": HUGE}}, False),
    "negative": ({"prompt_tokens": -HUGE, "completion_tokens": -1}, False),
    "zero": ({"prompt_tokens": 0, "completion_tokens": 0}, False),
    "none": ({"prompt_tokens": None, "completion_tokens": None}, False),
    "texts": ({"prompt_tokens": "many", "completion_tokens": "9e99"}, False),
    "booleans": ({"prompt_tokens": True, "completion_tokens": True}, False),
    "nested": ({"prompt_tokens": {"prompt_tokens": HUGE}, "completion_tokens": [[HUGE]]}, False),
    "a list": ([HUGE, HUGE], False),
    "a number": (HUGE, False),
    "a cost": ({"prompt_tokens": 11, "completion_tokens": 7, "cost": 1e300, "is_byok": "yes"}, False),
}


@pytest.mark.parametrize(("report", "stream"), take_turns(REPORTS, STREAMS))
def test_no_report_spends_what_nobody_used(server, upstream, report, stream):
    """Whatever is reported, the session is charged about what was read and written; a count that can't be is an
    incident and a note in the request's report, and the client isn't told it either."""
    usage, lie = REPORTS[report]
    upstream.plays("liar", plays.good(TEXT, usage=usage))
    session = f"lie-{report.replace(' ', '-')}-{stream}"
    outcome = ask(server, user("hi"), stream=stream, headers={"x-mlx-stack-session": session})
    assert (outcome.status, outcome.text) == (200, TEXT)
    told = report_of(server, outcome)
    incidents = [each for each in incidents_of(server, outcome) if each["kind"] == "usage"]

    assert 0 < spent(server, session) <= PROMPT_TOKENS_MAX + len(TEXT)
    assert bool(incidents) is lie
    assert any("can't be" in note for note in told["notes"]) is lie
    assert str(HUGE) not in outcome.wire
    if lie:
        assert incidents[0]["tier"] == "liar"
        assert max(incidents[0]["evidence"].values()) >= 10**6
        assert told["attempts"][0]["estimated"]


def with_torn(call: bool) -> Play:
    """An answer, or a call, in the middle of which a line was torn."""
    if not call:
        sends: list[bytes] = [send.data for send in plays.words(TEXT)]
        return (Head(headers=SSE), *map(Send, [*sends, b'data: {"choices": [{"del\n\n']), *plays.tail())
    pieces = [json.dumps({"city": "San"})[:-2], " Francisco", '"}']
    first = {"index": 0, "id": "c", "function": {"name": "get_weather", "arguments": pieces[0]}}
    last = plays.chunk({"tool_calls": [{"index": 0, "function": {"arguments": pieces[2]}}]})
    torn = b'data: {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"argum\n\n'
    frames = [plays.chunk({"tool_calls": [first]}), torn, last]
    return (Head(headers=SSE), *map(Send, frames), *plays.tail("tool_calls"))


def test_a_torn_line_costs_no_answer_and_makes_no_call(server, upstream, stream):
    """Text goes on, with a note; a call that is whole without the lost piece, and wrong, never leaves: the next tier is
    asked for it."""
    upstream.plays("liar", with_torn(call=False))
    outcome = ask(server, user("hi"), stream=stream)
    assert (outcome.status, outcome.text, outcome.header("Tier")) == (200, TEXT, "liar")
    assert any("can't be read" in note for note in report_of(server, outcome)["notes"])

    upstream.plays("liar", with_torn(call=True))
    outcome = ask(server, user("weather?"), stream=stream, tools=WEATHER_TOOLS)
    assert outcome.status == 200
    assert '"San"' not in outcome.wire
    assert "Paris" in outcome.wire
    assert report_of(server, outcome)["attempts"][0]["fault"] == "protocol"
