"""Which of several reasons a refused request is told, and in which words."""

from dataclasses import replace

import pytest

from reliability.attempt import Attempt
from reliability.escalation.decisions import Refuse
from reliability.escalation.policies import decide
from reliability.escalation.refusals import ATTEMPTS_CHARS_MAX, describe_attempts
from reliability.types import Fault, Flaw, RefuseCode
from tests.unit.reliability.escalation.test_policies import CHAIN, no_retries, situation


def attempt_of(tier: str, met: Fault | Flaw, retry_after_s: float | None) -> Attempt:
    fault, flaw = (met, None) if isinstance(met, Fault) else (None, met)
    return Attempt(tier=tier, ran=True, fault=fault, flaw=flaw, detail=f"{tier}: {met}", retry_after_s=retry_after_s)


def decide_on(*attempts: Attempt) -> Refuse:
    tiers = dict.fromkeys(attempt.tier for attempt in attempts)
    decision = decide(replace(situation(attempts), chain=tuple(tiers), limits=no_retries()))
    assert isinstance(decision, Refuse)
    return decision


WITHOUT_TIMES = [
    (Fault.UNAVAILABLE, Fault.UNAVAILABLE, RefuseCode.NO_TIER_EVER),
    (Fault.AUTH, Fault.CLOUD_BARRED, RefuseCode.NO_TIER_EVER),
    (Fault.CLOUD_BARRED, Fault.CLOUD_BARRED, RefuseCode.CLOUD_BARRED),
    (Fault.LOADING, Fault.UNAVAILABLE, RefuseCode.LOADING),
    (Fault.CONTEXT_LENGTH, Fault.UNAVAILABLE, RefuseCode.CONTEXT_LENGTH),
    (Fault.UNSUPPORTED, Fault.UNAVAILABLE, RefuseCode.UNSUPPORTED),
    (Fault.SERVER_ERROR, Fault.UNAVAILABLE, RefuseCode.UPSTREAM),
    (Fault.IDLE_TIMEOUT, Fault.UNAVAILABLE, RefuseCode.TIMEOUT),
    (Fault.OVERLOADED, Fault.SERVER_ERROR, RefuseCode.OVERLOADED),
    (Fault.UNSUPPORTED, Fault.CONTEXT_LENGTH, RefuseCode.CONTEXT_LENGTH),
    (Fault.MEMORY_PRESSURE, Fault.UNAVAILABLE, RefuseCode.MEMORY_PRESSURE),
    # Isolated by hand, and without a word on when: only a person can help.
    (Fault.BREAKER_OPEN, Fault.UNAVAILABLE, RefuseCode.NO_TIER_EVER),
]


@pytest.mark.parametrize(
    ("met", "code", "wait_s"),
    [
        *((((one, None), (other, None)), code, None) for one, other, code in WITHOUT_TIMES),
        (((Fault.OVERLOADED, 9.0), (Fault.OVERLOADED, 4.0)), RefuseCode.OVERLOADED, 4.0),
        # What passes comes first, and with it the time, where each of those that may come back has told one.
        (((Fault.BREAKER_OPEN, 9.0), (Fault.STATE_SILENT, 2.0)), RefuseCode.NO_TIER, 2.0),
        (((Fault.BREAKER_OPEN, 9.0), (Fault.AUTH, None)), RefuseCode.NO_TIER, 9.0),
        (((Fault.BREAKER_OPEN, 9.0), (Fault.SERVER_ERROR, None)), RefuseCode.UPSTREAM, None),
        (((Flaw.TOOL_CALL_INVALID, None), (Fault.BREAKER_OPEN, 9.0)), RefuseCode.NO_TIER, 9.0),
        (((Flaw.TOOL_CALL_INVALID, None), (Fault.SERVER_ERROR, None)), RefuseCode.UPSTREAM, None),
        (((Fault.CONTEXT_LENGTH, None), (Fault.BREAKER_OPEN, 9.0)), RefuseCode.NO_TIER, 9.0),
        (((Flaw.TOOL_CALL_INVALID, None), (Fault.AUTH, 30.0)), RefuseCode.INVALID_ANSWER, None),
        (((Flaw.EMPTY, None), (Fault.CONTEXT_LENGTH, None)), RefuseCode.INVALID_ANSWER, None),
        (((Fault.BUDGET, None), (Fault.SERVER_ERROR, None)), RefuseCode.UPSTREAM, None),
        (((Fault.BUDGET, None), (Fault.UNAVAILABLE, None)), RefuseCode.BUDGET, None),
        (((Fault.BUDGET, 60.0), (Fault.UNAVAILABLE, None)), RefuseCode.RATE, 60.0),
    ],
)
def test_what_passes_comes_before_what_stays(met, code, wait_s):
    """An agent that asks again is right where anything may come back, and wrong where nothing can. Of several reasons
    the most telling is the code, every tier's stands in the message, and the client is told the earliest moment."""
    attempts = [attempt_of(tier, what, wait) for tier, (what, wait) in zip(CHAIN, met, strict=False)]
    decision = decide_on(*attempts)
    assert (decision.code, decision.retry_after_s) == (code, wait_s)
    assert all(attempt.detail in decision.message for attempt in attempts)


@pytest.mark.parametrize(
    ("first", "then", "code", "wait_s"),
    [
        ((Fault.SERVER_ERROR, None), (Fault.RETRY_BUDGET, 12.0), RefuseCode.UPSTREAM, None),
        ((Flaw.TOOL_CALL_INVALID, None), (Fault.RETRY_BUDGET, 12.0), RefuseCode.NO_TIER, 12.0),
        ((Fault.SERVER_ERROR, 3.0), (Flaw.TOOL_CALL_INVALID, None), RefuseCode.INVALID_ANSWER, None),
    ],
)
def test_of_one_tier_its_end_counts(first, then, code, wait_s):
    """What was wrong says more than that it couldn't be tried again; where a re-ask was barred, it may come later. A
    tier that broke once and then gave a bad answer is not down."""
    decision = decide_on(attempt_of("fast", *first), attempt_of("fast", *then))
    assert (decision.code, decision.retry_after_s) == (code, wait_s)


def test_the_words_are_bounded_and_said_once():
    """Ten tiers that the same budget bars are one clause; a long word of a tier is cut."""
    same = tuple(
        Attempt(tier=f"t{n}", ran=False, fault=Fault.BUDGET, detail="this session is spent") for n in range(10)
    )
    long = tuple(Attempt(tier=f"t{n}", ran=True, fault=Fault.AUTH, detail=f"{n}" * 9_000) for n in range(10))
    assert describe_attempts(same) == "this session is spent"
    assert len(describe_attempts(long)) <= ATTEMPTS_CHARS_MAX
