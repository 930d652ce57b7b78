"""What explains a refusal best, as laws over every two things that may have been met."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.admission.request import AdmissionRequest, BudgetWindow, Load, Policy, RejectedBy, Rejection
from reliability.attempt import Attempt
from reliability.escalation.refusals import CODE_RANKING, code_of, passes, rank_attempt, record_rejection, verdict_of
from reliability.types import Fault, Flaw, Verdict

waits = st.none() | st.floats(0, 86_400)


def attempt_of(met: Fault | Flaw, retry_after_s: float | None) -> Attempt:
    fault, flaw = (met, None) if isinstance(met, Fault) else (None, met)
    return Attempt(tier="fast", ran=True, fault=fault, flaw=flaw, detail="x", retry_after_s=retry_after_s)


LOOP = attempt_of(Flaw.LOOP, None)
attempts = st.builds(attempt_of, st.sampled_from([*Fault, *Flaw]), waits)


@given(attempts, attempts)
def test_what_passes_is_more_telling_than_what_stays(one, other):
    """An agent that asks again is right where anything may come back."""
    if passes(one) and not passes(other):
        assert rank_attempt(one) < rank_attempt(other)


@given(attempts, attempts)
def test_what_is_called_the_same_is_as_telling(one, other):
    """So it doesn't matter which of them speaks first. What has no rank of its own comes last."""
    last = rank_attempt(LOOP)
    ranks = rank_attempt(one), rank_attempt(other)
    assert max(ranks) <= last
    if last not in ranks:
        assert (ranks[0] == ranks[1]) == (code_of(one) is code_of(other))


@given(attempts)
def test_a_loop_explains_no_refusal_where_anything_else_does(met):
    """What is in the way of an answer is what the other tier said; that this one's model repeats itself isn't."""
    if code_of(met) in CODE_RANKING and met.flaw is not Flaw.LOOP:
        assert rank_attempt(met) < rank_attempt(LOOP)


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.CRASHED, Fault.PROTOCOL, Fault.AUTH, Fault.IDLE_TIMEOUT])
def test_a_fault_of_the_tier_is_a_failure(fault):
    """The breaker hears of it; but not where the client had left."""
    attempt = Attempt(tier="fast", ran=True, fault=fault)
    assert verdict_of(attempt) is Verdict.FAILURE
    assert verdict_of(replace(attempt, cancelled=True)) is Verdict.IGNORED


def test_a_request_blames_a_tier_once():
    """Law: however often a request fails at a tier, the breaker counts one failure; another tier's is its own."""
    failed = [
        Attempt(tier=tier, ran=True, fault=Fault.SERVER_ERROR) for tier in ("fast", "slow", "fast", "fast", "slow")
    ]
    verdicts = [verdict_of(attempt, failed[:at]) for at, attempt in enumerate(failed)]

    assert verdicts == [Verdict.FAILURE] * 2 + [Verdict.IGNORED] * 3
    answered = Attempt(tier="fast", ran=True)
    assert verdict_of(answered, failed) is Verdict.SUCCESS
    assert verdict_of(failed[0], [answered, replace(failed[0], cancelled=True)]) is Verdict.FAILURE


def test_a_full_tier_that_says_until_when_is_left_alone():
    """429 with Retry-After is a failure with a known end; without it nothing is known."""
    full = Attempt(tier="fast", ran=True, fault=Fault.OVERLOADED)
    assert verdict_of(full) is Verdict.IGNORED
    assert verdict_of(replace(full, retry_after_s=3.0)) is Verdict.FAILURE


@pytest.mark.parametrize("rejected_by", list(RejectedBy))
def test_every_bar_has_its_fault(rejected_by):
    """A call that was not let through is written down: nothing ran, and the reason is said."""
    rejection = Rejection(
        "fast", rejected_by, "why", 2.0, Policy.HARD_STOP, (Load(BudgetWindow.HOUR, 90, 80, 112),), 20
    )
    attempt = record_rejection(rejection, AdmissionRequest(tier="fast", key="k", session="s", prompt_tokens=20))

    assert not attempt.ran
    assert attempt.fault is not None
    assert attempt.detail
    assert "was not called" not in attempt.detail
    assert attempt.hard_stop == (rejected_by is RejectedBy.BUDGET)
