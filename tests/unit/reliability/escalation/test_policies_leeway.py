"""Answers that were refused and may be right all the same: when they are delivered."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.attempt import Attempt, Confidence, Leeway
from reliability.escalation.decisions import Accept, Call, Refuse
from reliability.escalation.policies import decide
from reliability.types import Fault, Flaw
from tests.unit.reliability.escalation.test_policies import CHAIN, HOUR_NS, chains, limits, outcomes, situation, walk


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
