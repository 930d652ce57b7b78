"""What an attempt says of its tier's health, and what an admission that was refused says to the walk.

The table is the place where faults and flaws are kept apart: only a fault of the tier itself feeds its breaker. An
answer that isn't good enough came from a tier that is well, and a client that leaves says nothing at all.
"""

from __future__ import annotations

from reliability.admission import Ask, Bar, Barred
from reliability.budget import Policy
from reliability.types import Attempt, Fault, Verdict
from reliability.wording import barred_in_words

__all__ = ["barred_attempt", "verdict_of"]

# Not the tier's failing: the request's (too long, unsupported, wrong), the load's, or what was never there.
SAYS_NOTHING = frozenset(
    {
        Fault.OVERLOADED,
        Fault.CONTEXT_LENGTH,
        Fault.UNSUPPORTED,
        Fault.BAD_REQUEST,
        Fault.LOADING,
        Fault.UNAVAILABLE,
    }
)
FAULT_OF_BAR = {
    Bar.OPEN: Fault.BREAKER_OPEN,
    Bar.PROBING: Fault.BREAKER_OPEN,
    Bar.ISOLATED: Fault.BREAKER_OPEN,
    Bar.MEMORY_PRESSURE: Fault.MEMORY_PRESSURE,
    Bar.BUDGET: Fault.BUDGET,
    Bar.RETRY_BUDGET: Fault.RETRY_BUDGET,
    Bar.FULL: Fault.OVERLOADED,
}


def verdict_of(attempt: Attempt) -> Verdict:
    """Success, failure or ignored. A tier that is full and says until when is left alone until then: a failure."""
    if attempt.fault is Fault.OVERLOADED and attempt.retry_after_s is not None:
        return Verdict.FAILURE
    if attempt.cancelled or attempt.fault in SAYS_NOTHING:
        return Verdict.IGNORED
    return Verdict.FAILURE if attempt.fault is not None else Verdict.SUCCESS


def barred_attempt(barred: Barred, ask: Ask) -> Attempt:
    """The record of a call that was not let through: nothing ran."""
    return Attempt(
        tier=barred.tier,
        ran=False,
        fault=FAULT_OF_BAR[barred.bar],
        detail=barred_in_words(barred, ask),
        retry_after_s=barred.retry_after_s,
        hard_stop=barred.bar is Bar.BUDGET and barred.policy is Policy.HARD_STOP,
    )
