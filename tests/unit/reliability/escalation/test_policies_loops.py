"""The walk where text stands before the client and the call behind it loops."""

from dataclasses import replace

import pytest
from hypothesis import given

from reliability.attempt import Attempt
from reliability.escalation.decisions import Accept, Call
from reliability.escalation.policies import decide
from reliability.types import Flaw, RefuseCode
from tests.unit.reliability.escalation.test_policies import chains, limits, no_retries, outcomes, situation, walk

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
