"""Answers with a flaw that are delivered all the same: calls and values in doubt, calls that loop behind text."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.attempt import Attempt, Confidence, Leeway
from reliability.escalation.decisions import Accept, Call, Refuse
from reliability.types import Fault, Flaw, Reason, RefuseCode
from tests.unit.reliability.escalation.test_policies import (
    CHAIN,
    HOUR_NS,
    chains,
    decide_on,
    limits,
    met,
    outcomes,
    walk,
)


@given(chains, limits, outcomes)
def test_a_doubt_changes_who_answers_and_nothing_else(chain, limits, outcomes):
    """The tiers are asked after a doubt as after a tier that isn't there: in the chain's order, each for its own
    faults."""
    first = met(Fault.UNAVAILABLE, chain[0], ran=False)
    doubted = met(Flaw.DOUBT, chain[0], confidence=Confidence({}, 0.4), calls_held=True)
    without, with_it = (walk(chain, limits, outcomes, first=(one,))[0] for one in (first, doubted))
    assert [one.tier for one in with_it] == [one.tier for one in without][: len(with_it)]


@given(chains, limits, outcomes)
def test_a_call_that_would_be_doubted_is_not_asked_for(chain, limits, outcomes):
    """Law: after an invalid call of a tier whose valid calls would be in doubt the next tier is asked. Once none behind
    it has answered, it is asked under its grammar, and nobody else any more."""
    vain = met(Flaw.TOOL_CALL_INVALID, chain[0], confidence=Confidence({}, 0.1))
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
    vain = met(Flaw.TOOL_CALL_INVALID, confidence=Confidence({}, 0.1))
    gone, doubted = met(left, "standard", ran=False), replace(vain, flaw=Flaw.DOUBT, calls_held=True)
    here = {"chain": CHAIN[:2], "confidence_min": 0.25, "grammars": frozenset({"fast"})}
    again = decide_on(vain, gone, **here)
    assert (again.tier, again.reask.constrained) == ("fast", True)
    assert decide_on(vain, gone, doubted, **here) == Accept(attempt=2)


def test_of_answers_in_doubt_the_likeliest_is_delivered():
    """Where the last tier is in doubt too, the likelier call counts, and of equally likely ones the last."""
    chances = zip(CHAIN, (0.3, 0.45, 0.2, 0.45), strict=True)
    doubted = [met(Flaw.DOUBT, tier, confidence=Confidence({}, likely)) for tier, likely in chances]
    assert decide_on(*doubted) == Accept(attempt=3)
    assert decide_on(*doubted[:3], chain=CHAIN[:3]) == Accept(attempt=1)


def test_calls_that_nobody_wanted_end_in_words():
    """Law: where each tier in doubt has called a tool that probably nobody wanted, or the last of them one that rather
    surely nobody wanted, the last is asked for words, once, and where that fails the likeliest call is delivered; not
    where text stands, or one of them was wanted."""
    one = met(Flaw.DOUBT, confidence=Confidence({}, 0.2, 0.9))
    two, here = met(Flaw.DOUBT, "standard", confidence=Confidence({}, 0.1, 0.9)), {"chain": CHAIN[:2]}
    assert decide_on(one, two, **here) == Call(tier="standard", words=True)
    for first, last, words in ((0.1, 0.7, True), (None, 0.7, True), (0.1, 0.5, False), (0.4, 0.5, True)):
        chances = [replace(a, confidence=Confidence({}, 0.1, c)) for a, c in ((one, first), (two, last))]
        assert isinstance(decide_on(*chances, **here), Call) is words
    for again in (two, met(Fault.BAD_REQUEST, "standard")):
        assert decide_on(one, two, again, **here) == Accept(attempt=0)
    for other in (*({"confidence": Confidence({}, 0.1, unwanted)} for unwanted in (0.3, None)), {"text_out": True}):
        assert decide_on(one, replace(two, **other), **here) == Accept(attempt=0)


def doubt(tier: str, said: str = "x", *, suspected: bool = True, calls: bool = True, **more) -> Attempt:
    return met(Flaw.TOOL_CALL_INVALID, tier, said, calls_held=calls, leeway=Leeway(said, suspected), **more)


@given(chains, limits, outcomes, st.sampled_from(["call", "suspected", "plain"]))
def test_a_doubt_is_never_a_reason_to_refuse_for_ever(chain, limits, outcomes, kind):
    """Law: once a tier has given a valid call that is in doubt, or an answer of which a value is only doubted, the
    client gets an answer, whatever becomes of the tiers behind: theirs if it is good, else this one."""
    first = doubt(chain[0], suspected=kind == "suspected")
    if kind == "call":
        first = met(Flaw.DOUBT, chain[0], confidence=Confidence({}, 0.4), calls_held=True)
    attempts, _, decision = walk(chain, limits, outcomes, first=(first,))
    assert isinstance(decision, Accept)
    accepted = attempts[decision.attempt]
    delivered = (Flaw.DOUBT, Flaw.LOOP) if kind == "call" else (Flaw.DOUBT, Flaw.LOOP, Flaw.FORM_INVALID)
    assert accepted.good or accepted.leeway is not None or accepted.flaw in delivered


@pytest.mark.parametrize("calls", [True, False])
@pytest.mark.parametrize("chain", [CHAIN[:1], CHAIN])
def test_what_is_only_suspected_is_asked_about_once(chain, calls):
    """Law: a tier is asked again about what is suspected, and believed when it says the same; so is the next one."""
    first = doubt("fast", calls=calls)
    assert isinstance(decide_on(first, chain=chain, reasks_max=2), Call)
    assert decide_on(first, first, chain=chain, reasks_max=2) == Accept(attempt=1)
    assert decide_on(first, doubt("standard", calls=calls), reasks_max=2) == Accept(attempt=1)
    assert isinstance(decide_on(first, doubt("fast", "y", calls=calls), reasks_max=2), Call)


def test_what_is_plain_is_believed_of_another_tier():
    """Law: what plainly stands for something else is believed when two tiers say it, and delivered where no tier is
    left."""
    first = doubt("fast", suspected=False)
    assert isinstance(decide_on(first, first, reasks_max=2), Call)
    assert decide_on(first, first, doubt("standard", suspected=False), reasks_max=2) == Accept(attempt=2)
    assert decide_on(first, first, first, chain=CHAIN[:1], reasks_max=2) == Accept(attempt=2)


@pytest.mark.parametrize(
    ("fault", "hard_stop", "left_ns"),
    [(Fault.DEADLINE, False, 0), (Fault.BUDGET, True, HOUR_NS), (Fault.BAD_REQUEST, False, HOUR_NS)],
)
def test_a_doubt_keeps_to_the_request_s_bounds(fault, hard_stop, left_ns):
    """Law: at the deadline, behind a budget that rejects every tier and where a tier refuses the request, what is there
    is delivered: a call that is in doubt, or an answer of which a value is."""
    last = met(fault, "standard", ran=False, hard_stop=hard_stop)
    for first in (doubt("fast"), met(Flaw.DOUBT, confidence=Confidence({}, 0.4), calls_held=True)):
        assert decide_on(first, last, remaining_ns=left_ns) == Accept(attempt=0)


def test_words_stand_behind_no_other_text():
    """Law: an answer in words is delivered behind its own text only; calls are behind any."""
    begun, other = doubt("fast", calls=False, text_out=True), doubt("fast", calls=False)
    told, here = met(Flaw.EMPTY, text_out=True), {"chain": CHAIN[:1], "reasks_max": 2}
    assert decide_on(begun, other, **here) == Accept(attempt=0)
    assert isinstance(decide_on(told, *[other] * 4, **here), Refuse)
    assert decide_on(told, *[doubt("fast")] * 2, **here) == Accept(attempt=2)


@given(chains, limits, outcomes)
def test_without_leeway_an_invalid_call_is_never_delivered(chain, limits, outcomes):
    """Law: the same flaw without leeway is refused as ever."""
    invalid = replace(doubt(chain[0]), leeway=None)
    attempts, _, decision = walk(chain, limits, outcomes, first=(invalid, invalid))
    if isinstance(decision, Accept):
        assert attempts[decision.attempt].flaw is not Flaw.TOOL_CALL_INVALID


# Its text stands, and its call is the third lap: valid, held, and delivered where nothing better comes.
SEEN_LOOP = met(Flaw.LOOP, text_out=True, calls_held=True)


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
    silent, told = met(flaw), met(flaw, text_out=True)
    unseen, wordy = replace(SEEN_LOOP, text_out=False), met(Flaw.LOOP)

    assert decide_on(SEEN_LOOP, silent, reasks_max=3) == Accept(attempt=0)
    assert isinstance(decide_on(unseen, silent, reasks_max=3), Call)
    assert isinstance(decide_on(wordy, silent, reasks_max=3), Call)
    assert decide_on(unseen, told, silent, reasks_max=3) == Accept(attempt=0)


def test_a_circuit_that_broke_since_delivers_nothing():
    """The same words in a walk that has met a broken circuit: the loop error, whatever was held before."""
    walked = SEEN_LOOP, met(Flaw.CIRCUIT_BREAK), met(Flaw.EMPTY)
    assert decide_on(*walked, chain=("fast",)).code is RefuseCode.LOOP


@pytest.mark.parametrize("flaw", [Flaw.TOOL_CALL_INVALID, Flaw.TRUNCATED])
def test_a_nudged_call_that_is_not_good_is_still_mended(flaw):
    """The model tries something else, which is what the nudge is for."""
    assert decide_on(SEEN_LOOP, met(flaw), reasks_max=3).reask is not None
