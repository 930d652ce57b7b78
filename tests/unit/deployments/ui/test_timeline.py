"""The timeline says what the report and the incidents say, in their order, and keeps texts to itself unless they are
kept."""

import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.ui.timeline import tell, write_curl
from tests.support.room_rig import attempt, report

SECRET = "zebra-4711"


def incident(kind: str, reason: str, number: int | None = 0, **evidence: Any) -> dict[str, Any]:
    return {"kind": kind, "reason": reason, "attempt": number, "evidence": evidence}


FAILURES = st.sampled_from([(None, None), ("server_error", None), (None, "loop"), (None, "tool_call_invalid")])


@given(st.lists(st.tuples(st.sampled_from(["fast", "standard"]), FAILURES, st.integers(0, 900)), max_size=8))
def test_a_step_for_each_call(calls):
    """In order, each with its tier and what was wrong; no wait is negative, and no bar is longer than the whole."""
    at, attempts = 0, []
    for tier, (fault, flaw), wait in calls:
        attempts.append(attempt(tier, fault=fault, flaw=flaw, at_ms=at + wait, elapsed_ms=50))
        at += wait + 50
    timeline = tell(report(attempts=attempts, total_ms=at), [], keep_text=False)

    assert [(step.attempt["tier"], step.failure) for step in timeline.steps] == [(t, f or w) for t, (f, w), _ in calls]
    assert [step.wait_ms for step in timeline.steps] == [wait for *_, wait in calls]
    assert all(step.attempt["at_ms"] + step.attempt["elapsed_ms"] <= timeline.total_ms for step in timeline.steps)


def test_what_was_wrong_and_what_was_done_is_told():
    """A violation with its place, a loop with its length, a repair with its fate, the tier that came next."""
    attempts = [attempt(flaw="tool_call_invalid"), attempt("standard", at_ms=500)]
    violation = {"kind": "missing", "path": "/arguments/city", "tool": "get_weather"}
    incidents = [
        incident("flaw", "tool_call_invalid", violations=[violation], violations_count=3),
        incident("escalation", "tool_validation_failure", to="standard", how="escalation"),
        incident("repair", "double_encoding", 1, count=2, delivered=True, paths=["/arguments"]),
        incident("loop", "loop", 1, laps=3, period=1, loop="calls", tools=["get_weather"]),
        incident("budget", "warning", None, spent=["session 83%"]),
    ]
    timeline = tell(report(attempts=attempts), incidents, keep_text=False)
    first, second = timeline.steps

    assert first.said == (
        "Missing in a call of get_weather at /arguments/city.",
        "And 2 more of the kind.",
        "Then escalation to standard: tool validation failure.",
    )
    assert second.said == (
        "Mended: double encoding, 2 time(s) at /arguments, and delivered.",
        "A loop: get_weather, 3 times, and nothing new (calls).",
    )
    assert timeline.others == ("Budget nearly spent: session 83%.",)
    assert (first.how, second.how) == ("the first call", "escalation, since the last answer was bad")


def test_a_thought_is_told_with_its_end():
    """Its tokens and what ended it; an older report says nothing of it. A call that never ran has no bar: it was
    refused before, without a wait."""
    thoughts = [{"thinking": {"tokens": 1200, "ended": ended}} for ended in ("model", "budget", "circling", None)]
    steps = tell(report(attempts=[*(attempt() | one for one in thoughts), attempt()]), [], keep_text=False).steps
    ends = ("ended by the model", "closed at its budget", "closed because it circled", "not ended")

    assert [step.said for step in steps] == [*((f"1,200 tokens of thought, {end}.",) for end in ends), ()]
    refused = attempt(ran=False, fault="budget", at_ms=None, elapsed_ms=0, ttft_ms=None, usage=None)
    (step,) = tell(report(attempts=[refused]), [], keep_text=False).steps
    assert (step.kind, step.wait_ms) == ("idle", 0.0)


def test_a_doubt_is_told_with_its_figure():
    """Law: how likely the server thought a call to be right, or unwanted, quotes nobody: it is told whether or not
    texts are kept, once. A tier behind whose doubt it is asked again is asked for words."""
    words = "tier fast: no tool was wanted with a probability of 70%"
    doubted = attempt(flaw="doubt") | {"detail": words}
    for keep_text in (False, True):
        first, second = tell(report(attempts=[doubted, attempt()]), [], keep_text=keep_text).steps
        assert (first.said, dict(first.texts)) == ((f"{words}.",), {})
        assert second.how == "the same tier again, for an answer in words"


def test_texts_are_told_where_they_were_kept():
    """The detail of a report, which may quote a call, only where texts are kept now."""
    told = report(attempts=[attempt(flaw="loop", detail=SECRET)])

    assert SECRET not in repr(tell(told, [], keep_text=False))
    assert tell(told, [], keep_text=True).steps[0].texts == {"detail": SECRET}
    assert tell(told, [incident("loop", "loop", nudge="stop")], keep_text=False).steps[0].texts == {"nudge": "stop"}


@given(st.text(min_size=1, max_size=30), st.text(min_size=1, max_size=30))
def test_curl_is_one_command_whatever_was_said(session, prompt):
    """No quote of a prompt or a session ends the shell's word."""
    made = write_curl(report(session=session), [incident("flaw", "x", prompt=prompt)], "http://h:1", keyed=True)
    words = shlex.split(made.replace("\\\n", " "))

    assert words[:2] == ["curl", "http://h:1/v1/chat/completions"]
    assert f"X-MLX-Stack-Session: {session}" in words
    assert json.loads(words[-1])["messages"] == [{"role": "user", "content": prompt}]


@pytest.mark.parametrize("prompt", ["\u202egnp.exe", "a\x9b201~b", "\x7f", "two\nlines", "\u2066x\u2069", "\U000e0041"])
def test_curl_is_what_it_looks_like(prompt):
    """Nothing turns its text around on the page, is invisible there, or is obeyed by the terminal it is pasted into."""
    made = write_curl(report(), [incident("flaw", "x", prompt=f"{prompt} grüße 🌦")], "http://h:1", keyed=False)

    assert made.replace("\n", "").isprintable()
    assert json.loads(shlex.split(made)[-1])["messages"][0]["content"] == f"{prompt} grüße 🌦"
    assert "grüße 🌦" in made
