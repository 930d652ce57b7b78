"""The walk along the chain, as laws over every walk that faults can produce."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reliability.escalation.policies import (
    BACKOFF_MAX_NS,
    RETRY_AFTER_MAX_NS,
    Accept,
    Call,
    Limits,
    Refuse,
    Situation,
    decide,
    reason_of,
)
from reliability.escalation.refusals import WALK_CHARS_MAX, walk_in_words
from reliability.escalation.retry_strategy import Rung
from reliability.faults import TRAITS, Again, OtherTier, traits_of
from reliability.types import Attempt, Fault, Flaw, Reason, RefuseCode

CHAIN = ("fast", "standard", "longctx", "premium")
HOUR_NS = 3600 * 10**9
RETRIED = [fault for fault in Fault if TRAITS[fault].again is Again.RETRY]
REASKED = [flaw for flaw in Flaw if TRAITS[flaw].again is Again.REASK]

limits = st.builds(
    Limits,
    retries_max=st.integers(0, 4),
    reasks_max=st.integers(0, 4),
    attempts_max=st.integers(1, 12),
    escalate_on=st.frozensets(st.sampled_from(list(Reason))),
)
chains = st.integers(1, 4).map(lambda n: CHAIN[:n])
# What each call of a walk comes to: a fault, a flaw, or None for a good answer.
outcomes = st.lists(st.sampled_from([None, *Fault, *Flaw]), min_size=60, max_size=60)


def walk(chain, limits, outcomes, *, jitter=0.5, retry_after_s=None, first=()):
    """Play a whole walk, after these attempts; return the attempts, the waits and the last decision."""
    attempts: list[Attempt] = [*first]
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
                fault=outcome if isinstance(outcome, Fault) else None,
                flaw=outcome if isinstance(outcome, Flaw) else None,
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
def test_a_tier_is_called_at_most_so_often(chains, limits, outcomes):
    """Faults on one tier are bounded by `retries_max`, flaws by `reasks_max`, and a loop is nudged there once."""
    attempts, _, _ = walk(chains, limits, outcomes)

    for tier in chains:
        mine = [a for a in attempts if a.tier == tier]
        loops = sum(a.flaw is Flaw.LOOP for a in mine)
        faults = sum(a.fault is not None for a in mine)
        flaws = sum(a.flaw in REASKED for a in mine)
        assert faults <= limits.retries_max + 1
        assert flaws <= limits.reasks_max + 1
        assert loops <= 2
        assert sum(a.flaw is Flaw.CIRCUIT_BREAK for a in mine) <= 1


@given(chains, limits, st.lists(st.sampled_from([*RETRIED, *REASKED, Flaw.LOOP]), min_size=60, max_size=60))
@example(
    CHAIN[:3],
    Limits(retries_max=3, reasks_max=3, attempts_max=8, escalate_on=frozenset(Reason)),
    [Fault.SERVER_ERROR] * 60,
)
def test_no_tier_is_left_unasked_for_second_tries(chain, limits, outcomes):
    """Where a request is refused, or only a loop is delivered, every tier has had its turn: what one tier may be asked
    again for never takes the attempt of a tier behind it."""
    limits = replace(limits, escalate_on=frozenset(Reason), attempts_max=max(limits.attempts_max, len(chain)))
    attempts, _, decision = walk(chain, limits, outcomes)

    assert isinstance(decision, Accept) or {attempt.tier for attempt in attempts} == set(chain)


@given(chains, limits, outcomes)
def test_only_a_good_answer_or_a_marked_loop_is_accepted(chain, limits, outcomes):
    """Accept follows a good attempt, always, or a loop that a nudge and another tier could not break."""
    attempts, _, decision = walk(chain, limits, outcomes)
    good = bool(attempts) and attempts[-1].good
    loop = any(attempt.flaw in (Flaw.LOOP, Flaw.CYCLE) for attempt in attempts)

    assert isinstance(decision, Accept) == good or loop
    assert not good or isinstance(decision, Accept)


@given(chains, limits, outcomes)
def test_a_tier_that_says_it_cannot_is_not_asked_again(chain, limits, outcomes):
    """No model, no key, no room for the prompt: asking again would only hear it again."""
    attempts, _, _ = walk(chain, limits, outcomes)

    for before, after in pairwise(attempts):
        assert traits_of(before).other_tier is not OtherTier.ALWAYS or before.tier != after.tier


@given(chains, limits, outcomes)
def test_a_request_moves_on_only_for_a_reason_that_is_switched_on(chain, limits, outcomes):
    """`escalate_on` governs faults; a tier that is no candidate at all is passed over regardless."""
    attempts, _, _ = walk(chain, limits, outcomes)

    for before, after in pairwise(attempts):
        if before.tier != after.tier:
            candidate = traits_of(before).other_tier is not OtherTier.ALWAYS
            assert not candidate or reason_of(before) in limits.escalate_on


@given(chains, limits, outcomes, st.floats(0, 0.999), st.one_of(st.none(), st.floats(0, 1e9)))
def test_waits_are_bounded(chain, limits, outcomes, jitter, retry_after_s):
    """No wait is longer than the larger of the two bounds, however long a tier asks for."""
    _, waits, _ = walk(chain, limits, outcomes, jitter=jitter, retry_after_s=retry_after_s)

    assert all(0 <= wait <= max(BACKOFF_MAX_NS, RETRY_AFTER_MAX_NS) for wait in waits)


def test_the_wait_doubles_and_a_long_retry_after_means_another_tier():
    """A tier that is coming back isn't stormed; one that wants more patience than there is isn't waited for."""
    failed = Attempt(tier="fast", ran=True, fault=Fault.SERVER_ERROR, detail="x")
    limits = replace(no_retries(), retries_max=9)
    waits = [
        decide(replace(situation((failed,) * n), limits=replace(limits, attempts_max=20))).wait_ns for n in range(1, 8)
    ]
    patient = decide(replace(situation((replace(failed, retry_after_s=1.5),)), limits=limits))
    impatient = decide(replace(situation((replace(failed, retry_after_s=3.0),)), limits=limits))

    assert waits == [50 * 10**6 * min(2**n, 20) for n in range(7)]
    assert (patient.tier, patient.wait_ns) == ("fast", 1_500_000_000)
    assert impatient.tier == "standard"


@given(st.sampled_from(list(Fault)))
def test_nothing_is_called_after_text_that_broke_off(fault):
    """Once text has left and the tier failed, another tier's answer can't take its place."""
    attempt = Attempt(tier="fast", ran=True, fault=fault, detail="x", text_out=True)
    decision = decide(situation((attempt,)))

    assert isinstance(decision, Refuse)
    assert decision.code is RefuseCode.BROKEN_STREAM


@pytest.mark.parametrize("flaw", [flaw for flaw in REASKED if flaw is not Flaw.CYCLE])
def test_after_text_alone_the_calls_are_still_open(flaw):
    """Text that has left stands, and a bad call behind it is mended by a re-ask, then by the next tier, or refused."""
    first = Attempt(tier="fast", ran=True, flaw=flaw, detail="x", text_out=True)
    again = decide(replace(situation((first,)), limits=replace(no_retries(), reasks_max=1)))
    up = decide(situation((first,)))
    end = decide(replace(situation((first,)), chain=("fast",)))

    assert isinstance(again, Call)
    assert again.tier == "fast"
    assert again.reask is not None
    assert isinstance(up, Call)
    assert up.tier == "standard"
    assert isinstance(end, Refuse)
    assert end.code is RefuseCode.BROKEN_STREAM


def test_a_loop_is_nudged_then_escalated_then_delivered_marked():
    """Three laps: the same tier with a nudge, the next tier with a nudge, and what two tiers say alike is delivered."""
    looped = [Attempt(tier=tier, ran=True, flaw=Flaw.LOOP, detail="x") for tier in ("fast", "fast", "standard")]
    limits = replace(no_retries(), reasks_max=1)
    decisions = [decide(replace(situation(tuple(looped[:n])), limits=limits)) for n in (1, 2, 3)]

    assert decisions == [Call(tier="fast", nudge=True), Call(tier="standard", nudge=True), Accept()]


def test_a_broken_circuit_is_never_delivered():
    """Five laps: the next tier at once; where none is left, the loop error with its `retry_after`."""
    broken = [Attempt(tier=tier, ran=True, flaw=Flaw.CIRCUIT_BREAK, detail="x") for tier in CHAIN]
    ups = [decide(situation(tuple(broken[:n]))) for n in (1, 2, 3)]
    end = decide(situation(tuple(broken)))

    assert [up.tier for up in ups if isinstance(up, Call)] == ["standard", "longctx", "premium"]
    assert isinstance(end, Refuse)
    assert (end.code, end.retry_after_s) == (RefuseCode.LOOP, 5.0)


def test_text_that_repeats_itself_is_asked_for_once_more_and_then_delivered():
    """One resample, then the next tier, and at the end what there is, marked: it is worth more than an error."""
    cycles = tuple(
        Attempt(tier=t, ran=True, flaw=Flaw.CYCLE, detail="x") for t in ("fast", "fast", "standard", "standard")
    )
    here = replace(situation(()), chain=("fast", "standard"), limits=replace(no_retries(), reasks_max=3))
    decisions = [decide(replace(here, attempts=cycles[:n])) for n in (1, 2, 3, 4)]

    assert [getattr(d, "tier", None) for d in decisions] == ["fast", "standard", "standard", None]
    assert decisions[3] == Accept(attempt=3)


def test_a_text_in_circles_is_worth_more_than_a_tier_that_is_not_there():
    """Where the tiers after it can't answer, the text that was stopped is delivered; not behind another's text."""
    cycle = Attempt(tier="fast", ran=True, flaw=Flaw.CYCLE, detail="x")
    gone = Attempt(tier="standard", ran=False, fault=Fault.UNAVAILABLE, detail="x")
    seen = replace(cycle, flaw=Flaw.TOOL_CALL_INVALID, text_out=True)
    here = replace(situation((cycle, gone)), chain=("fast", "standard"))

    assert decide(here) == Accept(attempt=0)
    assert isinstance(decide(replace(here, attempts=(seen, cycle, gone))), Refuse)


def test_text_that_repeats_itself_is_delivered_once_it_has_left():
    """There is no call that could be mended, and the text stands already: accept it, marked."""
    attempt = Attempt(tier="fast", ran=True, flaw=Flaw.CYCLE, detail="x", text_out=True)

    assert decide(situation((attempt,))) == Accept()


@pytest.mark.parametrize("chain", [("fast",), ("fast", "standard")])
def test_a_circuit_that_breaks_on_text_that_has_left_calls_nobody(chain):
    """No tier's call could mend a text, and no tier's text could take its place: the loop error at once."""
    attempt = Attempt(tier="fast", ran=True, flaw=Flaw.CIRCUIT_BREAK, detail="x", text_out=True)
    end = decide(replace(situation((attempt,)), chain=chain))
    held = decide(replace(situation((replace(attempt, calls_held=True),)), chain=("fast", "standard")))

    assert isinstance(end, Refuse)
    assert end.code is RefuseCode.LOOP
    assert isinstance(held, Call)


def test_the_rungs_of_a_re_ask():
    """An invalid call is corrected first and resampled next; an empty answer has nothing to correct."""
    limits = replace(no_retries(), reasks_max=3)
    bad = Attempt(tier="fast", ran=True, flaw=Flaw.TOOL_CALL_INVALID, detail="x")
    empty = replace(bad, flaw=Flaw.EMPTY)
    rungs = [decide(replace(situation((bad,) * n), limits=limits)).reask.rung for n in (1, 2, 3)]

    assert rungs == [Rung.CORRECT, Rung.RESAMPLE, Rung.RESAMPLE]
    assert decide(replace(situation((empty,)), limits=limits)).reask.rung is Rung.RESAMPLE
    constrained = replace(limits, grammars=frozenset({"fast"}))
    assert decide(replace(situation((bad,) * 3), limits=constrained)).reask.constrained


@given(flaw=st.sampled_from(REASKED), reasks=st.integers(1, 3))
def test_only_a_model_that_tried_to_call_is_made_to_call(flaw, reasks):
    """A grammar demands a call: it follows an invalid or a cut one, never an empty answer or one in circles."""
    limits = replace(no_retries(), reasks_max=4, attempts_max=9, grammars=frozenset({"fast"}))
    flawed = Attempt(tier="fast", ran=True, flaw=flaw, detail="x")
    decision = decide(replace(situation((flawed,) * (reasks + 1)), limits=limits))

    constrained = isinstance(decision, Call) and decision.reask is not None and decision.reask.constrained
    assert constrained == (flaw in (Flaw.TOOL_CALL_INVALID, Flaw.TRUNCATED))


def test_a_spent_budget_stops_or_moves_on():
    """`hard_stop` refuses at once; a bar that is not hard leaves the next tier."""
    rejection = Attempt(tier="fast", ran=False, fault=Fault.BUDGET, detail="spent", retry_after_s=60.0)
    hard = decide(situation((replace(rejection, hard_stop=True),)))
    spent = decide(situation((replace(rejection, hard_stop=True, retry_after_s=None),)))
    soft = decide(situation((rejection,)))

    assert isinstance(hard, Refuse)
    assert isinstance(spent, Refuse)
    assert (hard.code, hard.retry_after_s) == (RefuseCode.RATE, 60.0)
    assert (spent.code, spent.retry_after_s) == (RefuseCode.BUDGET, None)
    assert isinstance(soft, Call)
    assert soft.tier == "standard"


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
        ((Fault.UNAVAILABLE, Fault.UNAVAILABLE), RefuseCode.NO_TIER_EVER),
        ((Fault.AUTH, Fault.CLOUD_BARRED), RefuseCode.NO_TIER_EVER),
        ((Fault.CLOUD_BARRED, Fault.CLOUD_BARRED), RefuseCode.CLOUD_BARRED),
        ((Fault.LOADING, Fault.UNAVAILABLE), RefuseCode.LOADING),
        ((Fault.CONTEXT_LENGTH, Fault.UNAVAILABLE), RefuseCode.CONTEXT_LENGTH),
        ((Fault.UNSUPPORTED, Fault.UNAVAILABLE), RefuseCode.UNSUPPORTED),
        ((Fault.SERVER_ERROR, Fault.UNAVAILABLE), RefuseCode.UPSTREAM),
        ((Fault.IDLE_TIMEOUT, Fault.UNAVAILABLE), RefuseCode.TIMEOUT),
        ((Fault.OVERLOADED, Fault.SERVER_ERROR), RefuseCode.OVERLOADED),
        ((Fault.UNSUPPORTED, Fault.CONTEXT_LENGTH), RefuseCode.CONTEXT_LENGTH),
        ((Fault.MEMORY_PRESSURE, Fault.UNAVAILABLE), RefuseCode.MEMORY_PRESSURE),
        # Isolated by hand, and without a word on when: only a person can help.
        ((Fault.BREAKER_OPEN, Fault.UNAVAILABLE), RefuseCode.NO_TIER_EVER),
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
    loops = (Flaw.LOOP, Flaw.CIRCUIT_BREAK, Flaw.CYCLE)

    assert reason is (Reason.LOOP_DETECTED if flaw in loops else Reason.TOOL_VALIDATION_FAILURE)


def test_the_shortest_retry_after_is_passed_on():
    """The client is told the earliest moment at which a tier may answer again."""
    attempts = tuple(
        Attempt(tier=tier, ran=True, fault=Fault.OVERLOADED, detail="full", retry_after_s=wait)
        for tier, wait in (("fast", 9.0), ("standard", 4.0))
    )
    decision = decide(replace(situation(attempts), chain=("fast", "standard")))

    assert isinstance(decision, Refuse)
    assert decision.retry_after_s == 4.0


@pytest.mark.parametrize(
    ("met", "code", "wait_s"),
    [
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
    """An agent that asks again is right where anything may come back, and wrong where nothing can."""
    attempts = tuple(attempt_of(tier, what, wait) for tier, (what, wait) in zip(CHAIN, met, strict=False))
    decision = decide(replace(situation(attempts), chain=CHAIN[: len(met)], limits=no_retries()))

    assert isinstance(decision, Refuse)
    assert (decision.code, decision.retry_after_s) == (code, wait_s)


@pytest.mark.parametrize(
    ("first", "code", "wait_s"),
    [
        (Fault.SERVER_ERROR, RefuseCode.UPSTREAM, None),
        (Flaw.TOOL_CALL_INVALID, RefuseCode.NO_TIER, 12.0),
    ],
)
def test_a_second_try_that_was_barred_hides_no_fault(first, code, wait_s):
    """What was wrong says more than that it couldn't be tried again; where a re-ask was barred, it may come later."""
    attempts = (attempt_of("fast", first, None), attempt_of("fast", Fault.RETRY_BUDGET, 12.0))
    decision = decide(replace(situation(attempts), chain=("fast",)))

    assert isinstance(decision, Refuse)
    assert (decision.code, decision.retry_after_s) == (code, wait_s)


def test_what_a_tier_said_before_it_answered_does_not_count():
    """A tier that broke once and then gave a bad answer is not down."""
    attempts = (attempt_of("fast", Fault.SERVER_ERROR, 3.0), attempt_of("fast", Flaw.TOOL_CALL_INVALID, None))
    decision = decide(replace(situation(attempts), chain=("fast",)))

    assert isinstance(decision, Refuse)
    assert (decision.code, decision.retry_after_s) == (RefuseCode.INVALID_ANSWER, None)


def test_the_words_are_bounded_and_said_once():
    """Ten tiers that the same budget bars are one clause; a long word of a tier is cut."""
    same = tuple(
        Attempt(tier=f"t{n}", ran=False, fault=Fault.BUDGET, detail="this session is spent") for n in range(10)
    )
    long = tuple(Attempt(tier=f"t{n}", ran=True, fault=Fault.AUTH, detail=f"{n}" * 9_000) for n in range(10))

    assert walk_in_words(same) == "this session is spent"
    assert len(walk_in_words(long)) <= WALK_CHARS_MAX


def attempt_of(tier: str, met: Fault | Flaw, retry_after_s: float | None) -> Attempt:
    fault, flaw = (met, None) if isinstance(met, Fault) else (None, met)
    return Attempt(tier=tier, ran=True, fault=fault, flaw=flaw, detail=f"{tier}: {met}", retry_after_s=retry_after_s)


def no_retries() -> Limits:
    return Limits(retries_max=0, attempts_max=8, escalate_on=frozenset(Reason))


def situation(attempts: tuple[Attempt, ...]) -> Situation:
    return Situation(chain=CHAIN, attempts=attempts, remaining_ns=HOUR_NS, limits=no_retries())
