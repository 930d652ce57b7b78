"""Answers with a flaw that are delivered all the same: calls and values in doubt, calls that loop behind text."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.attempt import Attempt, Confidence, Leeway
from reliability.escalation.decisions import Accept, Call, Refuse
from reliability.escalation.policies import decide
from reliability.types import Fault, Flaw, Reason, RefuseCode
from tests.unit.reliability.escalation.test_policies import (
    CHAIN,
    HOUR_NS,
    chains,
    limits,
    no_retries,
    outcomes,
    situation,
    walk,
)


@given(chains, limits, outcomes)
def test_a_valid_call_is_never_lost_to_a_doubt(chain, limits, outcomes):
    """Once a tier has given a valid call that was in doubt, the client gets an answer, whatever becomes of the tiers
    behind: theirs if it is good, else the call."""
    doubted = Attempt(
        tier=chain[0], ran=True, flaw=Flaw.DOUBT, detail="x", confidence=Confidence({}, 0.4), calls_held=True
    )
    attempts, _, decision = walk(chain, limits, outcomes, first=(doubted,))
    assert isinstance(decision, Accept)
    assert attempts[decision.attempt].good or attempts[decision.attempt].flaw in (Flaw.DOUBT, Flaw.LOOP)


@given(chains, limits, outcomes)
def test_a_doubt_changes_who_answers_and_nothing_else(chain, limits, outcomes):
    """The tiers are asked after a doubt as after a tier that isn't there: in the chain's order, each for its own
    faults."""
    first = Attempt(tier=chain[0], ran=False, fault=Fault.UNAVAILABLE, detail="x")
    doubted = replace(first, ran=True, fault=None, flaw=Flaw.DOUBT, confidence=Confidence({}, 0.4), calls_held=True)
    without, with_it = (walk(chain, limits, outcomes, first=(one,))[0] for one in (first, doubted))
    assert [one.tier for one in with_it] == [one.tier for one in without][: len(with_it)]


@given(chains, limits, outcomes)
def test_a_call_that_would_be_doubted_is_not_asked_for(chain, limits, outcomes):
    """Law: after an invalid call of a tier whose valid calls would be in doubt the next tier is asked. Once none behind
    it has answered, it is asked under its grammar, and nobody else any more."""
    vain = Attempt(tier=chain[0], ran=True, flaw=Flaw.TOOL_CALL_INVALID, detail="x", confidence=Confidence({}, 0.1))
    limits = replace(limits, confidence_min=0.25, cheap=None, escalate_on=frozenset(Reason))
    attempts, _, decision = walk(chain, limits, outcomes, first=(vain,))
    tiers = [attempt.tier for attempt in attempts]
    assert isinstance(decision, Accept | Refuse)
    assert len(attempts) <= limits.attempts_max
    if len(chain) > 1 and limits.attempts_max > 1:
        assert tiers[1] == chain[1]
        back = tiers.index(chain[0], 1) if chain[0] in tiers[1:] else len(tiers)
        assert set(tiers[back:]) <= {chain[0]}


@pytest.mark.parametrize("left", [Fault.UNAVAILABLE, Fault.CRASHED])
def test_a_tier_that_was_spared_answers_where_no_other_can(left):
    """While the larger models load, a call in doubt is better than none."""
    vain = Attempt(tier="fast", ran=True, flaw=Flaw.TOOL_CALL_INVALID, detail="x", confidence=Confidence({}, 0.1))
    gone = Attempt(tier="standard", ran=False, fault=left, detail="x")
    here = replace(situation((vain, gone)), chain=("fast", "standard"))
    limits = replace(here.limits, confidence_min=0.25, grammars=frozenset({"fast"}), retries_max=0)
    again = decide(replace(here, limits=limits))
    assert (again.tier, again.reask is not None and again.reask.constrained) == ("fast", True)
    doubted = replace(vain, flaw=Flaw.DOUBT, calls_held=True)
    assert decide(replace(here, limits=limits, attempts=(vain, gone, doubted))) == Accept(attempt=2)


def test_of_answers_in_doubt_the_likeliest_is_delivered():
    """Where the last tier is in doubt too, the likelier call counts, and of equally likely ones the last."""
    doubted = [
        Attempt(tier=tier, ran=True, flaw=Flaw.DOUBT, detail="x", confidence=Confidence({}, likely))
        for tier, likely in zip(CHAIN, (0.3, 0.45, 0.2, 0.45), strict=True)
    ]
    assert decide(situation(tuple(doubted))) == Accept(attempt=3)
    assert decide(replace(situation(tuple(doubted[:3])), chain=CHAIN[:3])) == Accept(attempt=1)


def test_calls_that_nobody_wanted_end_in_words():
    """Law: where each tier in doubt has called a tool that probably nobody wanted, or the last of them one that rather
    surely nobody wanted, the last is asked for words, once, and where that fails the likeliest call is delivered; not
    where text stands, or one of them was wanted."""
    unwanted = [
        Attempt(tier=tier, ran=True, flaw=Flaw.DOUBT, detail="x", confidence=Confidence({}, likely, 0.9))
        for tier, likely in (("fast", 0.2), ("standard", 0.1))
    ]
    here = replace(situation(tuple(unwanted)), chain=CHAIN[:2])
    assert decide(here) == Call(tier="standard", words=True)
    for first, last, words in ((0.1, 0.7, True), (None, 0.7, True), (0.1, 0.5, False), (0.4, 0.5, True)):
        chances = [replace(a, confidence=Confidence({}, 0.1, c)) for a, c in zip(unwanted, (first, last), strict=True)]
        assert isinstance(decide(replace(here, attempts=tuple(chances))), Call) is words
    for again in (unwanted[1], Attempt(tier="standard", ran=True, fault=Fault.BAD_REQUEST, detail="x")):
        assert decide(replace(here, attempts=(*unwanted, again))) == Accept(attempt=0)
    for other in (*({"confidence": Confidence({}, 0.1, unwanted)} for unwanted in (0.3, None)), {"text_out": True}):
        assert decide(replace(here, attempts=(unwanted[0], replace(unwanted[1], **other)))) == Accept(attempt=0)


def doubt(tier: str, said: str = "x", *, suspected: bool = True, calls: bool = True, **more) -> Attempt:
    return Attempt(
        tier=tier,
        ran=True,
        flaw=Flaw.TOOL_CALL_INVALID,
        detail=said,
        calls_held=calls,
        leeway=Leeway(said, suspected),
        **more,
    )


def decide_on(attempts: tuple[Attempt, ...], chain: tuple[str, ...]) -> Call | Accept | Refuse:
    here = situation(attempts)
    return decide(replace(here, chain=chain, limits=replace(here.limits, reasks_max=2)))


@given(chains, limits, outcomes, st.booleans())
def test_a_doubt_is_never_a_reason_to_refuse_for_ever(chain, limits, outcomes, suspected):
    """Law: once a tier has given an answer of which a value is only doubted, the client gets an answer, whatever
    becomes of the tiers behind: theirs if it is good, else this one."""
    attempts, _, decision = walk(chain, limits, outcomes, first=(doubt(chain[0], suspected=suspected),))
    assert isinstance(decision, Accept)
    accepted = attempts[decision.attempt]
    assert accepted.good or accepted.leeway is not None or accepted.flaw in (Flaw.DOUBT, Flaw.LOOP, Flaw.FORM_INVALID)


@pytest.mark.parametrize("calls", [True, False])
@pytest.mark.parametrize("chain", [CHAIN[:1], CHAIN])
def test_what_is_only_suspected_is_asked_about_once(chain, calls):
    """Law: a tier is asked again about what is suspected, and believed when it says the same; so is the next one."""
    first = doubt("fast", calls=calls)
    assert isinstance(decide_on((first,), chain=chain), Call)
    assert decide_on((first, first), chain=chain) == Accept(attempt=1)
    assert decide_on((first, doubt("standard", calls=calls)), chain=CHAIN) == Accept(attempt=1)
    assert isinstance(decide_on((first, doubt("fast", "y", calls=calls)), chain=CHAIN), Call)


def test_what_is_plain_is_believed_of_another_tier():
    """Law: what plainly stands for something else is believed when two tiers say it, and delivered where no tier is
    left."""
    first = doubt("fast", suspected=False)
    assert isinstance(decide_on((first, first), chain=CHAIN), Call)
    other = doubt("standard", suspected=False)
    assert decide_on((first, first, other), chain=CHAIN) == Accept(attempt=2)
    assert decide_on((first,) * 3, chain=CHAIN[:1]) == Accept(attempt=2)


@pytest.mark.parametrize(
    ("fault", "hard_stop", "left_ns"),
    [(Fault.DEADLINE, False, 0), (Fault.BUDGET, True, HOUR_NS), (Fault.BAD_REQUEST, False, HOUR_NS)],
)
def test_a_doubt_keeps_to_the_request_s_bounds(fault, hard_stop, left_ns):
    """Law: at the deadline, behind a budget that rejects every tier and where a tier refuses the request, what is there
    is delivered: a call that is in doubt, or an answer of which a value is."""
    last = Attempt(tier="standard", ran=False, fault=fault, detail="x", hard_stop=hard_stop)
    unsure = replace(doubt("fast"), flaw=Flaw.DOUBT, confidence=Confidence({}, 0.4), leeway=None)
    for first in (doubt("fast"), unsure):
        assert decide(replace(situation((first, last)), remaining_ns=left_ns)) == Accept(attempt=0)


def test_words_stand_behind_no_other_text():
    """Law: an answer in words is delivered behind its own text only; calls are behind any."""
    begun, other = doubt("fast", calls=False, text_out=True), doubt("fast", calls=False)
    assert decide_on((begun, other), chain=CHAIN[:1]) == Accept(attempt=0)
    told = Attempt(tier="fast", ran=True, flaw=Flaw.EMPTY, detail="x", text_out=True)
    assert isinstance(decide_on((told, *[other] * 4), chain=CHAIN[:1]), Refuse)
    assert decide_on((told, *[doubt("fast")] * 2), chain=CHAIN[:1]) == Accept(attempt=2)


@given(chains, limits, outcomes)
def test_without_leeway_an_invalid_call_is_never_delivered(chain, limits, outcomes):
    """Law: the same flaw without leeway is refused as ever."""
    invalid = replace(doubt(chain[0]), leeway=None)
    attempts, _, decision = walk(chain, limits, outcomes, first=(invalid, invalid))
    if isinstance(decision, Accept):
        assert attempts[decision.attempt].flaw is not Flaw.TOOL_CALL_INVALID


# Its text stands, and its call is the third lap: valid, held, and delivered where nothing better comes.
SEEN_LOOP = Attempt(tier="fast", ran=True, flaw=Flaw.LOOP, detail="x", text_out=True, calls_held=True)


@given(chains, limits, outcomes)
def test_a_loop_behind_text_that_has_left_stops_nobody(chain, limits, outcomes):
    """Whatever the nudge comes to, the stream ends in an answer: another call, or one that was held. Only a broken
    circuit delivers nothing."""
    attempts, _, decision = walk(chain, limits, outcomes, first=(SEEN_LOOP,))
    broken = any(attempt.flaw is Flaw.CIRCUIT_BREAK for attempt in attempts)
    assert isinstance(decision, Accept) or broken
    assert attempts[-1].good or broken or attempts[decision.attempt].flaw in (Flaw.LOOP, Flaw.DOUBT)


@pytest.mark.parametrize("flaw", [Flaw.EMPTY, Flaw.CYCLE])
def test_words_after_a_nudge_are_not_asked_for_again(flaw):
    """The model has taken the advice and calls nothing; its words can't stand behind the text, so the held call does.
    Where no text stands, or where there was no call to hold, the walk goes on."""
    silent = Attempt(tier="fast", ran=True, flaw=flaw, detail="x")
    here = replace(situation((SEEN_LOOP, silent)), limits=replace(no_retries(), reasks_max=3))
    unseen, wordy = replace(SEEN_LOOP, text_out=False), replace(SEEN_LOOP, text_out=False, calls_held=False)

    assert decide(here) == Accept(attempt=0)
    assert isinstance(decide(replace(here, attempts=(unseen, silent))), Call)
    assert isinstance(decide(replace(here, attempts=(wordy, silent))), Call)
    assert decide(replace(here, attempts=(unseen, replace(silent, text_out=True), silent))) == Accept(attempt=0)


def test_a_circuit_that_broke_since_delivers_nothing():
    """The same words in a walk that has met a broken circuit: the loop error, whatever was held before."""
    broken, silent = (
        Attempt(tier="fast", ran=True, flaw=flaw, detail="x") for flaw in (Flaw.CIRCUIT_BREAK, Flaw.EMPTY)
    )
    end = decide(replace(situation((SEEN_LOOP, broken, silent)), chain=("fast",)))
    assert end.code is RefuseCode.LOOP


@pytest.mark.parametrize("flaw", [Flaw.TOOL_CALL_INVALID, Flaw.TRUNCATED])
def test_a_nudged_call_that_is_not_good_is_still_mended(flaw):
    """The model tries something else, which is what the nudge is for."""
    tried = Attempt(tier="fast", ran=True, flaw=flaw, detail="x")
    decision = decide(replace(situation((SEEN_LOOP, tried)), limits=replace(no_retries(), reasks_max=3)))
    assert decision.reask is not None
