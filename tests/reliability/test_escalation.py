"""The walk along the chain, as laws over every walk that faults can produce."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.escalation import (
    BACKOFF_MAX_NS,
    NO_CANDIDATE,
    RETRY_AFTER_MAX_NS,
    Accept,
    Call,
    Limits,
    Refuse,
    RefuseCode,
    Situation,
    decide,
    reason_of,
)
from reliability.types import Attempt, Fault, Flaw, Reason

CHAIN = ("fast", "standard", "longctx", "premium")
HOUR_NS = 3600 * 10**9

limits = st.builds(
    Limits,
    retries_max=st.integers(0, 4),
    attempts_max=st.integers(1, 12),
    escalate_on=st.frozensets(st.sampled_from(list(Reason))),
)
chains = st.integers(1, 4).map(lambda n: CHAIN[:n])
# What each call of a walk comes to: a fault, or None for a good answer.
outcomes = st.lists(st.one_of(st.none(), st.sampled_from(list(Fault))), min_size=60, max_size=60)


def walk(chain, limits, outcomes, *, jitter=0.5, retry_after_s=None):
    """Play a whole walk; return the attempts, the waits and the last decision."""
    attempts: list[Attempt] = []
    waits: list[int] = []
    for outcome in outcomes:
        decision = decide(
            Situation(chain=chain, attempts=tuple(attempts), remaining_ns=HOUR_NS, limits=limits, jitter=jitter)
        )
        if not isinstance(decision, Call):
            return attempts, waits, decision
        waits.append(decision.wait_ns)
        attempts.append(
            Attempt(
                tier=decision.tier,
                ran=True,
                fault=outcome,
                detail=f"{decision.tier} {outcome}",
                retry_after_s=retry_after_s,
            )
        )
    raise AssertionError("the walk doesn't end")


@given(chains, limits, outcomes)
def test_a_walk_ends_within_its_attempts(chain, limits, outcomes):
    """Whatever happens, there are at most `attempts_max` calls, and then an answer or a refusal."""
    attempts, _, decision = walk(chain, limits, outcomes)

    assert len(attempts) <= limits.attempts_max
    assert isinstance(decision, Accept | Refuse)


@given(chains, limits, outcomes)
def test_a_walk_never_goes_back_down_the_chain(chain, limits, outcomes):
    """The tiers of a walk stand in the chain's order."""
    attempts, _, _ = walk(chain, limits, outcomes)
    positions = [chain.index(a.tier) for a in attempts]

    assert positions == sorted(positions)


@given(chains, limits, outcomes)
def test_a_tier_is_called_at_most_one_time_more_than_its_retries(chain, limits, outcomes):
    """`retries_max` bounds the calls to one tier."""
    attempts, _, _ = walk(chain, limits, outcomes)

    assert all(sum(a.tier == tier for a in attempts) <= limits.retries_max + 1 for tier in chain)


@given(chains, limits, outcomes)
def test_only_a_good_answer_is_accepted(chain, limits, outcomes):
    """Accept follows a good attempt and nothing else, and a good attempt is always accepted."""
    attempts, _, decision = walk(chain, limits, outcomes)

    assert isinstance(decision, Accept) == (bool(attempts) and attempts[-1].good)


@given(chains, limits, outcomes)
def test_a_tier_that_says_it_cannot_is_not_asked_again(chain, limits, outcomes):
    """No model, no key, no room for the prompt: asking again would only hear it again."""
    attempts, _, _ = walk(chain, limits, outcomes)

    for before, after in pairwise(attempts):
        assert before.fault not in NO_CANDIDATE or before.tier != after.tier


@given(chains, limits, outcomes)
def test_a_request_moves_on_only_for_a_reason_that_is_switched_on(chain, limits, outcomes):
    """`escalate_on` governs faults; a tier that is no candidate at all is passed over regardless."""
    attempts, _, _ = walk(chain, limits, outcomes)

    for before, after in pairwise(attempts):
        if before.tier != after.tier:
            assert before.fault in NO_CANDIDATE or reason_of(before) in limits.escalate_on


@given(chains, limits, outcomes, st.floats(0, 0.999), st.one_of(st.none(), st.floats(0, 1e9)))
def test_waits_are_bounded(chain, limits, outcomes, jitter, retry_after_s):
    """No wait is longer than the larger of the two bounds, however long a tier asks for."""
    _, waits, _ = walk(chain, limits, outcomes, jitter=jitter, retry_after_s=retry_after_s)

    assert all(0 <= wait <= max(BACKOFF_MAX_NS, RETRY_AFTER_MAX_NS) for wait in waits)


@given(st.sampled_from(list(Fault)), st.booleans())
def test_nothing_is_called_after_a_commit_point(fault, text):
    """Once text or calls have left, another tier's answer can't take their place."""
    attempt = Attempt(tier="fast", ran=True, fault=fault, detail="x", text_out=text, calls_out=not text)
    decision = decide(situation((attempt,)))

    assert isinstance(decision, Refuse)
    assert decision.code is RefuseCode.BROKEN_STREAM


@given(st.sampled_from(sorted(set(Fault) - {Fault.BAD_REQUEST})))
def test_no_call_after_the_deadline(fault):
    """With no time left nothing is called."""
    attempt = Attempt(tier="fast", ran=True, fault=fault, detail="x")
    decision = decide(replace(situation((attempt,)), remaining_ns=0))

    assert isinstance(decision, Refuse)
    assert decision.code is RefuseCode.DEADLINE


def test_a_bad_request_is_refused_at_once():
    """A request that is wrong in itself isn't carried from tier to tier; the field is named."""
    attempt = Attempt(tier="fast", ran=True, fault=Fault.BAD_REQUEST, detail="no", param="messages")

    assert decide(situation((attempt,))) == Refuse(code=RefuseCode.BAD_REQUEST, message="no", param="messages")


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        ((Fault.UNAVAILABLE, Fault.UNAVAILABLE), RefuseCode.NO_TIER),
        ((Fault.LOADING, Fault.UNAVAILABLE), RefuseCode.LOADING),
        ((Fault.CONTEXT_LENGTH, Fault.UNAVAILABLE), RefuseCode.CONTEXT_LENGTH),
        ((Fault.UNSUPPORTED, Fault.UNAVAILABLE), RefuseCode.UNSUPPORTED),
        ((Fault.SERVER_ERROR, Fault.UNAVAILABLE), RefuseCode.UPSTREAM),
        ((Fault.IDLE_TIMEOUT, Fault.UNAVAILABLE), RefuseCode.TIMEOUT),
        ((Fault.OVERLOADED, Fault.SERVER_ERROR), RefuseCode.OVERLOADED),
        ((Fault.UNSUPPORTED, Fault.CONTEXT_LENGTH), RefuseCode.CONTEXT_LENGTH),
    ],
)
def test_the_refusal_is_the_one_that_helps_the_client_most(faults, code):
    """Of several reasons the most telling is the code, and every tier's reason stands in the message."""
    attempts = tuple(
        Attempt(tier=tier, ran=True, fault=fault, detail=f"{tier}: {fault}")
        for tier, fault in zip(CHAIN, faults, strict=False)
    )
    decision = decide(replace(situation(attempts), chain=CHAIN[: len(faults)], limits=no_retries()))

    assert isinstance(decision, Refuse)
    assert decision.code is code
    assert all(a.detail in decision.message for a in attempts)


@pytest.mark.parametrize("flaw", list(Flaw))
def test_every_flaw_has_a_public_reason(flaw):
    """Loops and everything else that is wrong with an answer map to the reasons of the header."""
    reason = reason_of(Attempt(tier="fast", ran=True, flaw=flaw))

    assert reason is (Reason.LOOP_DETECTED if flaw is Flaw.LOOP else Reason.TOOL_VALIDATION_FAILURE)


def test_the_shortest_retry_after_is_passed_on():
    """The client is told the earliest moment at which a tier may answer again."""
    attempts = tuple(
        Attempt(tier=tier, ran=True, fault=Fault.OVERLOADED, detail="full", retry_after_s=wait)
        for tier, wait in (("fast", 9.0), ("standard", 4.0))
    )
    decision = decide(replace(situation(attempts), chain=("fast", "standard")))

    assert isinstance(decision, Refuse)
    assert decision.retry_after_s == 4.0


def no_retries() -> Limits:
    return Limits(retries_max=0, attempts_max=8, escalate_on=frozenset(Reason))


def situation(attempts: tuple[Attempt, ...]) -> Situation:
    return Situation(chain=CHAIN, attempts=attempts, remaining_ns=HOUR_NS, limits=no_retries())
