"""The one loop over every fault, with scripted tiers and no server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.config import Timeouts
from deployments.drive import Ports, Run, drive
from deployments.telemetry import MonotonicClock
from deployments.tiers.scripted import ScriptedTier
from deployments.wire.report import report_headers, report_of
from reliability.escalation import Limits, RefuseCode
from reliability.types import CallDelta, ChatRequest, Event, Fault, Finish, FinishReason, Reason, Text

CHAIN = ("fast", "standard", "premium")
QUICK = Timeouts(connect_s=1, first_token_s=0.05, idle_s=0.05, total_s=5)
CALL = {"tool_call": {"name": "f", "arguments": {"a": 1}}}

# Answers by name: the steps, and whether they end well.
ANSWERS: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "good": ([{"text": "good from {{tier}}"}], True),
    "call": ([{"text": "text of {{tier}} "}, CALL], True),
    "empty": ([{"text": "", "delay_s": 0}], True),
    "500": ([{"status": 500}], False),
    "400": ([{"status": 400}], False),
    "429": ([{"status": 429, "retry_after_s": 60}], False),
    "cut": ([{"cut": True}], False),
    "break": ([{"text": "half of {{tier}} "}, {"cut": True}], False),
    "break-call": ([{"text": "half of {{tier}} "}, CALL, {"cut": True}], False),
    "think-cut": ([{"reasoning": "hm"}, {"cut": True}], False),
    "hang": ([{"silence": True}], False),
    "stall": ([{"text": "half of {{tier}} "}, {"silence": True}], False),
    "none": ([{"unavailable": "no model"}], False),
}


def run_once(names: tuple[str, ...], *, hold_all: bool, retries: int = 1) -> tuple[Run, list[Event]]:
    """Drive one request; tier i of the chain answers with `ANSWERS[names[i]]` each time."""

    async def go() -> tuple[Run, list[Event]]:
        chain = CHAIN[: len(names)]
        tiers = {t: ScriptedTier(name=t, script=[{"answer": ANSWERS[n][0]}]) for t, n in zip(chain, names, strict=True)}
        clock = MonotonicClock()
        limits = Limits(retries_max=retries, attempts_max=8, escalate_on=frozenset(Reason))
        request = ChatRequest(
            request_id="r", session_id="s", messages=({"role": "user", "content": "hi"},), max_tokens=64, timeout_s=30
        )
        deadline_ns = clock.now_ns() + 30 * 10**9
        run = Run(request=request, chain=chain, limits=limits, deadline_ns=deadline_ns, hold_all=hold_all)
        ports = Ports(tiers=tiers, timeouts=dict.fromkeys(chain, QUICK), clock=clock, jitter=lambda: 0.0)
        events = [event async for batch in drive(run, ports) for event in batch]
        assert all(tier.active == 0 for tier in tiers.values())
        return run, events

    return asyncio.run(go())


def text_of(events: list[Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, Text))


names = st.lists(st.sampled_from(sorted(ANSWERS)), min_size=1, max_size=3).map(tuple)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names, st.booleans())
def test_every_request_ends_in_an_answer_or_one_refusal(names, hold_all):
    """Exactly one of `finish` and `refusal` is set, and nothing keeps running."""
    run, _ = run_once(names, hold_all=hold_all)

    assert (run.finish is None) != (run.refusal is None)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names, st.booleans())
def test_text_comes_from_one_tier_and_calls_from_one_tier(names, hold_all):
    """No answer is patched together; and nothing at all leaves of a request that is refused before a commit point."""
    run, events = run_once(names, hold_all=hold_all)
    text = text_of(events)

    assert sum(tier in text for tier in CHAIN) <= 1
    assert sum(isinstance(e, CallDelta) and e.name == "f" for e in events) <= 1
    if run.refusal is not None and run.refusal.code is not RefuseCode.BROKEN_STREAM:
        assert events == [] or not text


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names)
def test_a_client_that_does_not_stream_gets_an_answer_if_any_tier_has_one(names):
    """Nothing has left, so every break is mended, unless a tier says that the request itself is wrong."""
    run, _ = run_once(names, hold_all=True)
    before_bad = names[: names.index("400")] if "400" in names else names

    assert (run.finish is not None) == any(ANSWERS[name][1] for name in before_bad)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names, st.booleans())
def test_the_report_tells_the_truth(names, hold_all):
    """Headers and report agree with what happened: who answered, where it started, how many calls ran."""
    run, _ = run_once(names, hold_all=hold_all)
    headers, report = report_headers(run), report_of(run)
    ran = sum(a.ran for a in run.attempts)

    assert headers["X-MLX-Stack-Retries"] == str(max(0, ran - 1)) == str(report["retries"])
    assert headers["X-MLX-Stack-Tier"] == run.attempts[-1].tier == report["tier"]
    assert ("X-MLX-Stack-Escalated-From" in headers) == (run.tier != "fast")
    assert len(report["attempts"]) == len(run.attempts)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("hang", Fault.FIRST_TOKEN_TIMEOUT),
        ("stall", Fault.IDLE_TIMEOUT),
        ("cut", Fault.CRASHED),
        ("429", Fault.OVERLOADED),
    ],
)
def test_each_break_is_written_down_as_what_it_is(name, fault):
    """The record of an attempt names its fault, and the next tier answers."""
    run, events = run_once((name, "good"), hold_all=True)

    assert run.attempts[0].fault is fault
    assert text_of(events) == "good from standard"


def test_calls_leave_whole_and_last():
    """The parts of a call are held until the attempt has ended well; the finish reason says so."""
    run, events = run_once(("call",), hold_all=False)

    assert [type(e) for e in events][-1] is CallDelta
    assert run.finish == Finish(reason=FinishReason.TOOL_CALLS, usage=run.finish.usage, model=run.finish.model)
    assert run.attempts[0].calls_out
    assert run.attempts[0].text_out


def test_thinking_commits_nothing():
    """A tier that breaks while it thinks is replaced, even in a stream."""
    run, events = run_once(("think-cut", "good"), hold_all=False)

    assert run.finish is not None
    assert text_of(events) == "good from standard"


def test_a_reader_that_leaves_is_written_down():
    """Closing the generator closes the tier's stream; the attempt says cancelled, and neither good nor a fault."""

    async def go() -> Run:
        tier = ScriptedTier(name="fast", script=[{"answer": "one two three four", "token_delay_s": 0.01}])
        clock = MonotonicClock()
        limits = Limits(retries_max=0, attempts_max=8, escalate_on=frozenset())
        request = ChatRequest(request_id="r", session_id="s", messages=(), max_tokens=64, timeout_s=30)
        run = Run(request=request, chain=("fast",), limits=limits, deadline_ns=clock.now_ns() + 10**10)
        events = drive(run, Ports(tiers={"fast": tier}, timeouts={"fast": QUICK}, clock=clock, jitter=lambda: 0.0))
        await anext(events)
        assert tier.active == 1
        await events.aclose()
        assert tier.active == 0
        return run

    run = asyncio.run(go())

    assert [(a.cancelled, a.good, a.fault) for a in run.attempts] == [(True, False, None)]
    assert report_of(run)["outcome"] == "client_left"
