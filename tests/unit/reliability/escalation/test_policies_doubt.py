"""Calls that are valid and in doubt, or would be: who is asked, and what is delivered."""

from dataclasses import replace

import pytest
from hypothesis import given

from reliability.attempt import Attempt, Confidence
from reliability.escalation.decisions import Accept, Call, Refuse
from reliability.escalation.policies import decide
from reliability.types import Fault, Flaw, Reason
from tests.unit.reliability.escalation.test_policies import CHAIN, chains, limits, outcomes, situation, walk


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
    """Law: where each tier in doubt has called a tool that probably nobody wanted, the last of them is asked for words,
    once, and where that fails the likeliest call is delivered; not where text stands, or one of them was wanted."""
    unwanted = [
        Attempt(tier=tier, ran=True, flaw=Flaw.DOUBT, detail="x", confidence=Confidence({}, likely, 0.9))
        for tier, likely in (("fast", 0.2), ("standard", 0.1))
    ]
    here = replace(situation(tuple(unwanted)), chain=CHAIN[:2])
    assert decide(here) == Call(tier="standard", words=True)
    for again in (unwanted[1], Attempt(tier="standard", ran=True, fault=Fault.BAD_REQUEST, detail="x")):
        assert decide(replace(here, attempts=(*unwanted, again))) == Accept(attempt=0)
    for other in (
        *({"confidence": Confidence({}, 0.1, unwanted)} for unwanted in (0.3, None)),
        {"text_out": True},
    ):
        assert decide(replace(here, attempts=(unwanted[0], replace(unwanted[1], **other)))) == Accept(attempt=0)
