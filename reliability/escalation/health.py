"""What an attempt says of its tier's health, and which attempt stands for a rejected admission.

The table of `reliability.faults` keeps faults and flaws apart: only a fault of the tier itself feeds its breaker. An
answer that isn't good enough came from a tier that is well, and a client that leaves says nothing at all.
"""

from __future__ import annotations

from reliability.admission.admit import RejectedBy, Rejection
from reliability.admission.budget import Policy
from reliability.admission.request import AdmissionRequest
from reliability.escalation.wording import describe_rejection
from reliability.faults import TRAITS, traits_of
from reliability.types import Attempt, Fault, Verdict


def verdict_of(attempt: Attempt) -> Verdict:
    """Return the verdict for the breaker. A full tier that reports until when is left alone
    until then: a failure."""
    traits = traits_of(attempt)
    if attempt.retry_after_s is not None and traits.verdict_with_time is not None:
        return traits.verdict_with_time
    return Verdict.IGNORED if attempt.cancelled else traits.verdict


def record_rejection(rejection: Rejection, request: AdmissionRequest) -> Attempt:
    """Record a call that was not let through: nothing ran."""
    return Attempt(
        tier=rejection.tier,
        ran=False,
        fault=_fault_of(rejection.rejected_by),
        detail=describe_rejection(rejection, request),
        retry_after_s=rejection.retry_after_s,
        hard_stop=rejection.rejected_by is RejectedBy.BUDGET and rejection.policy is Policy.HARD_STOP,
    )


def _fault_of(rejected_by: RejectedBy) -> Fault:
    return next(fault for fault in Fault if rejected_by in TRAITS[fault].rejected_by)
