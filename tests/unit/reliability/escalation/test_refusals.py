"""What explains a refusal best, as laws over every two things that may have been met."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reliability.escalation.refusals import CODE_RANKING, code_of, passes, rank_attempt
from reliability.types import Attempt, Fault, Flaw

waits = st.none() | st.floats(0, 86_400)


def attempt_of(met: Fault | Flaw, retry_after_s: float | None) -> Attempt:
    fault, flaw = (met, None) if isinstance(met, Fault) else (None, met)
    return Attempt(tier="fast", ran=True, fault=fault, flaw=flaw, detail="x", retry_after_s=retry_after_s)


LOOP = attempt_of(Flaw.LOOP, None)
attempts = st.builds(attempt_of, st.sampled_from([*Fault, *Flaw]), waits)


@given(attempts, attempts)
def test_what_passes_is_more_telling_than_what_stays(one, other):
    """An agent that asks again is right where anything may come back."""
    if passes(one) and not passes(other):
        assert rank_attempt(one) < rank_attempt(other)


@given(attempts, attempts)
def test_what_is_called_the_same_is_as_telling(one, other):
    """So it doesn't matter which of them speaks first. What has no rank of its own comes last."""
    last = rank_attempt(LOOP)
    ranks = rank_attempt(one), rank_attempt(other)

    assert max(ranks) <= last
    if last not in ranks:
        assert (ranks[0] == ranks[1]) == (code_of(one) is code_of(other))


@given(attempts)
def test_a_loop_explains_no_refusal_where_anything_else_does(met):
    """What is in the way of an answer is what the other tier said; that this one's model repeats itself isn't."""
    if code_of(met) in CODE_RANKING and met.flaw is not Flaw.LOOP:
        assert rank_attempt(met) < rank_attempt(LOOP)
