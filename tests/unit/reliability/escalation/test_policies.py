"""The walk along the chain, as laws over every walk that faults can produce."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reliability.attempt import Attempt
from reliability.escalation.decisions import Accept, Call, Limits, Reask, Refuse, RetryStep, Situation
from reliability.escalation.policies import BACKOFF_MAX_NS, RETRY_AFTER_MAX_NS, decide, reason_of
from reliability.faults import TRAITS, Again, OtherTier, traits_of
from reliability.types import Fault, Flaw, Reason, RefuseCode

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


def met(what: Fault | Flaw | None, tier: str = "fast", detail: str = "x", **more: Any) -> Attempt:
    """An attempt that has met this fault or flaw; None: a good one."""
    known = {"fault": what} if isinstance(what, Fault) else {"flaw": what}
    return Attempt(**{"tier": tier, "ran": True, "detail": detail} | known | more)


def decide_on(*attempts: Attempt, chain: tuple[str, ...] = CHAIN, remaining_ns: int = HOUR_NS, **limits: Any) -> Any:
    """What is decided behind these attempts, where nothing is tried twice but for what `limits` allow."""
    allowed = replace(Limits(retries_max=0, attempts_max=8, escalate_on=frozenset(Reason)), **limits)
    return decide(Situation(chain=chain, attempts=attempts, remaining_ns=remaining_ns, limits=allowed))


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
        attempts.append(met(outcome, decision.tier, f"{decision.tier} {outcome}", retry_after_s=retry_after_s))
    raise AssertionError("the walk doesn't end")


@given(chains, limits, outcomes)
def test_a_walk_ends_within_its_attempts(chain, limits, outcomes):
    """There are at most `attempts_max` calls, in the order of the chain, and then an answer or a refusal."""
    attempts, _, decision = walk(chain, limits, outcomes)
    positions = [chain.index(a.tier) for a in attempts]
    assert len(attempts) <= limits.attempts_max
    assert isinstance(decision, Accept | Refuse)
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
def test_only_a_good_answer_or_a_marked_one_is_accepted(chain, limits, outcomes):
    """Accept follows a good attempt, always, or a loop that a nudge and another tier could not break, or a doubt that
    no other tier could resolve."""
    attempts, _, decision = walk(chain, limits, outcomes)
    good = bool(attempts) and attempts[-1].good
    loop = any(attempt.flaw in (Flaw.LOOP, Flaw.CYCLE, Flaw.DOUBT) for attempt in attempts)
    assert isinstance(decision, Accept) == good or loop
    assert not good or isinstance(decision, Accept)


@given(chains, limits, outcomes)
def test_a_request_moves_on_only_for_a_reason_that_is_switched_on(chain, limits, outcomes):
    """`escalate_on` governs faults; a tier that says that it can't (no model, no key, no room for the prompt) is passed
    over regardless, and not asked again."""
    attempts, _, _ = walk(chain, limits, outcomes)
    for before, after in pairwise(attempts):
        stays, candidate = before.tier == after.tier, traits_of(before).other_tier is not OtherTier.ALWAYS
        assert candidate or not stays
        assert stays or not candidate or reason_of(before) in limits.escalate_on


@given(chains, limits, outcomes, st.floats(0, 0.999), st.one_of(st.none(), st.floats(0, 1e9)))
def test_waits_are_bounded(chain, limits, outcomes, jitter, retry_after_s):
    """No wait is longer than the larger of the two bounds, however long a tier asks for."""
    _, waits, _ = walk(chain, limits, outcomes, jitter=jitter, retry_after_s=retry_after_s)
    assert all(0 <= wait <= max(BACKOFF_MAX_NS, RETRY_AFTER_MAX_NS) for wait in waits)


def test_the_wait_doubles_and_a_long_retry_after_means_another_tier():
    """A tier that is coming back isn't stormed; one that wants more patience than there is isn't waited for."""
    failed = met(Fault.SERVER_ERROR)
    waits = [decide_on(*[failed] * n, retries_max=9, attempts_max=20).wait_ns for n in range(1, 8)]
    patient, impatient = (decide_on(replace(failed, retry_after_s=asked), retries_max=9) for asked in (1.5, 3.0))

    assert waits == [50 * 10**6 * min(2**n, 20) for n in range(7)]
    assert (patient.tier, patient.wait_ns) == ("fast", 1_500_000_000)
    assert impatient.tier == "standard"


@given(st.sampled_from(list(Fault)))
def test_nothing_is_called_after_text_that_broke_off(fault):
    """Once text has left and the tier failed, another tier's answer can't take its place."""
    assert decide_on(met(fault, text_out=True)).code is RefuseCode.BROKEN_STREAM


@pytest.mark.parametrize("flaw", [flaw for flaw in REASKED if flaw is not Flaw.CYCLE])
def test_after_text_alone_the_calls_are_still_open(flaw):
    """Text that has left stands, and a bad call behind it is mended by a re-ask, then by the next tier, or refused."""
    first = met(flaw, text_out=True)
    again = decide_on(first, reasks_max=1)
    assert (again.tier, again.reask is None) == ("fast", False)
    assert decide_on(first).tier == "standard"
    assert decide_on(first, chain=("fast",)).code is RefuseCode.BROKEN_STREAM


def test_a_loop_is_nudged_then_escalated_then_delivered_marked():
    """Law: three laps are answered by the same tier with a nudge and with chance, since at 0 it says the same again; by
    the next tier with a nudge; and what two tiers say alike is delivered."""
    looped = [met(Flaw.LOOP, tier) for tier in ("fast", "fast", "standard")]
    decisions = [decide_on(*looped[:n], reasks_max=1) for n in (1, 2, 3)]
    nudged = Call(tier="fast", nudge=True, reask=Reask(RetryStep.RESAMPLE, constrained=False))
    assert decisions == [nudged, Call(tier="standard", nudge=True), Accept()]


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.AUTH, Fault.SERVER_ERROR, Fault.BREAKER_OPEN])
def test_what_repeats_itself_is_worth_more_than_a_tier_that_is_not_there(fault):
    """The stage of the nudge stops nobody: where the tiers after it can't answer, the call that loops is delivered,
    marked, the newest of them, behind a broken circuit nothing is; and the text that was stopped in its circles is, but
    not behind another's text."""
    loop, cycle, gone = met(Flaw.LOOP, calls_held=True), met(Flaw.CYCLE), met(fault, "standard", ran=False)
    broken, other = replace(loop, flaw=Flaw.CIRCUIT_BREAK), met(Flaw.TOOL_CALL_INVALID, text_out=True)
    assert decide_on(loop, loop, gone, chain=CHAIN[:2]) == Accept(attempt=1)
    assert isinstance(decide_on(loop, broken, gone, chain=CHAIN[:2]), Refuse)
    assert decide_on(cycle, gone, chain=CHAIN[:2]) == Accept(attempt=0)
    assert isinstance(decide_on(other, cycle, gone, chain=CHAIN[:2]), Refuse)


def test_a_broken_circuit_is_never_delivered():
    """Five laps: the next tier at once; where none is left, the loop error with its `retry_after`."""
    broken = [met(Flaw.CIRCUIT_BREAK, tier) for tier in CHAIN]
    assert [decide_on(*broken[:n]).tier for n in (1, 2, 3)] == ["standard", "longctx", "premium"]
    end = decide_on(*broken)
    assert (end.code, end.retry_after_s) == (RefuseCode.LOOP, 5.0)


def test_text_that_repeats_itself_is_asked_for_once_more_and_then_delivered():
    """One resample, then the next tier, and at the end what there is, marked: it is worth more than an error."""
    cycles = [met(Flaw.CYCLE, tier) for tier in ("fast", "fast", "standard", "standard")]
    decisions = [decide_on(*cycles[:n], chain=CHAIN[:2], reasks_max=3) for n in (1, 2, 3, 4)]
    assert [getattr(d, "tier", None) for d in decisions] == ["fast", "standard", "standard", None]
    assert decisions[3] == Accept(attempt=3)


@given(chains, limits, st.integers(0, 3))
def test_text_that_repeats_itself_is_delivered_once_it_has_left(chain, limits, seams):
    """There is no call that could be mended, and the text stands already: accept it, marked. Nobody goes on with it,
    since what it came to before it circled can't be taken back to."""
    attempt = met(Flaw.CYCLE, chain[0], text_out=True)
    limits = replace(limits, continuations_max=seams, escalate_on=frozenset(Reason))
    here = Situation(chain=chain, attempts=(attempt,), remaining_ns=HOUR_NS, limits=limits)

    assert decide(here) == decide(replace(here, remaining_ns=0)) == Accept()


@pytest.mark.parametrize("chain", [("fast",), ("fast", "standard")])
def test_a_circuit_that_breaks_on_text_that_has_left_calls_nobody(chain):
    """No tier's call could mend a text, and no tier's text could take its place: the loop error at once."""
    broken = met(Flaw.CIRCUIT_BREAK, text_out=True)
    assert decide_on(broken, chain=chain).code is RefuseCode.LOOP
    assert isinstance(decide_on(replace(broken, calls_held=True), chain=CHAIN[:2]), Call)


def test_the_steps_of_a_re_ask():
    """An invalid call is corrected first and resampled next; an empty answer has nothing to correct."""
    bad = met(Flaw.TOOL_CALL_INVALID)
    steps = [decide_on(*[bad] * n, reasks_max=3).reask.step for n in (1, 2, 3)]
    assert steps == [RetryStep.CORRECT, RetryStep.RESAMPLE, RetryStep.RESAMPLE]
    assert decide_on(met(Flaw.EMPTY), reasks_max=3).reask.step is RetryStep.RESAMPLE
    assert decide_on(*[bad] * 3, reasks_max=3, grammars=frozenset({"fast"})).reask.constrained


@given(flaw=st.sampled_from(REASKED), reasks=st.integers(1, 3))
def test_only_a_model_that_tried_to_call_is_made_to_call(flaw, reasks):
    """A grammar demands a call: it follows an invalid or a cut one, never an empty answer or one in circles."""
    flawed = [met(flaw)] * (reasks + 1)
    decision = decide_on(*flawed, reasks_max=4, attempts_max=9, grammars=frozenset({"fast"}))
    constrained = isinstance(decision, Call) and decision.reask is not None and decision.reask.constrained
    assert constrained == (flaw in (Flaw.TOOL_CALL_INVALID, Flaw.TRUNCATED))


def test_a_spent_budget_stops_or_moves_on():
    """`hard_stop` refuses at once; a bar that is not hard leaves the next tier."""
    rejection = met(Fault.BUDGET, ran=False, retry_after_s=60.0)
    for wait_s, code in ((60.0, RefuseCode.RATE), (None, RefuseCode.BUDGET)):
        hard = decide_on(replace(rejection, hard_stop=True, retry_after_s=wait_s))
        assert (hard.code, hard.retry_after_s) == (code, wait_s)
    assert decide_on(rejection).tier == "standard"


@given(st.sampled_from(sorted(set(Fault) - {Fault.BAD_REQUEST, Fault.UNJUDGED})))
def test_no_call_after_the_deadline(fault):
    """With no time left nothing is called."""
    assert decide_on(met(fault), remaining_ns=0).code is RefuseCode.DEADLINE


def test_a_bad_request_is_refused_at_once():
    """A request that is wrong in itself isn't carried from tier to tier; the field is named."""
    refused = decide_on(met(Fault.BAD_REQUEST, detail="no", param="messages"))
    assert refused == Refuse(code=RefuseCode.BAD_REQUEST, message="no", param="messages")


@pytest.mark.parametrize("flaw", list(Flaw))
def test_every_flaw_has_a_public_reason(flaw):
    """Loops and everything else that is wrong with an answer map to the reasons of the header."""
    reason = reason_of(met(flaw))
    loops = (Flaw.LOOP, Flaw.CIRCUIT_BREAK, Flaw.CYCLE)
    other = Reason.LOW_CONFIDENCE if flaw is Flaw.DOUBT else Reason.TOOL_VALIDATION_FAILURE
    assert reason is (Reason.LOOP_DETECTED if flaw in loops else other)
