"""What an attempt says of its tier's health, and the attempt that stands for a rejection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reliability.admission.admit import RejectedBy, Rejection
from reliability.admission.budget import BudgetWindow, Load, Policy
from reliability.admission.request import AdmissionRequest
from reliability.escalation.health import record_rejection, verdict_of
from reliability.types import Attempt, Fault, Flaw, Verdict


@pytest.mark.parametrize("flaw", list(Flaw))
def test_a_flaw_says_nothing_bad_of_the_tier(flaw):
    """An answer that isn't good enough came from a tier that is well."""
    assert verdict_of(Attempt(tier="fast", ran=True, flaw=flaw)) is Verdict.SUCCESS


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.CRASHED, Fault.PROTOCOL, Fault.AUTH, Fault.IDLE_TIMEOUT])
def test_a_fault_of_the_tier_is_a_failure(fault):
    """The breaker hears of it; but not where the client had left."""
    attempt = Attempt(tier="fast", ran=True, fault=fault)

    assert verdict_of(attempt) is Verdict.FAILURE
    assert verdict_of(replace(attempt, cancelled=True)) is Verdict.IGNORED


@pytest.mark.parametrize("fault", [Fault.CONTEXT_LENGTH, Fault.UNSUPPORTED, Fault.BAD_REQUEST, Fault.LOADING])
def test_what_is_the_request_s_fault_is_not_the_tier_s(fault):
    """Ignored."""
    assert verdict_of(Attempt(tier="fast", ran=True, fault=fault)) is Verdict.IGNORED


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
