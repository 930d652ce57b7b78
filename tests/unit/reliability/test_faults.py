"""The table of faults and flaws: that it is whole, and what its columns must never say together."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.admission.request import RejectedBy
from reliability.escalation.policies import reason_of
from reliability.escalation.refusals import PASSING, code_of, verdict_of
from reliability.faults import TRAITS, Again, OtherTier, Ran, traits_of
from reliability.types import Fault, Flaw, Reason, RefuseCode, Verdict
from tests.unit.reliability.escalation.test_policies import met as met_with

# What no tier can do anything about: the request itself, and who may spend or send what.
CLIENTS_OWN = {
    RefuseCode.BAD_REQUEST, RefuseCode.UNSUPPORTED, RefuseCode.CONTEXT_LENGTH, RefuseCode.BUDGET,
    RefuseCode.CLOUD_BARRED,
}  # fmt: skip
# What an attempt may say of when to come back.
waits = st.none() | st.floats(0, 86_400)


def rows(kind: type[Fault] | type[Flaw]) -> dict:
    return {met: TRAITS[met] for met in kind}


def test_every_fault_and_every_flaw_has_a_row():
    """And nothing else has. A fault and a flaw are never the same word: as a key, each would stand for both."""
    assert set(TRAITS) == {*Fault, *Flaw}
    assert len(TRAITS) == len(Fault) + len(Flaw)
    assert all(type(met) in (Fault, Flaw) for met in TRAITS)


@pytest.mark.parametrize("met", [*Fault, *Flaw])
def test_an_attempt_has_the_row_of_what_it_met(met):
    """What is known of an attempt is what the table says of its fault or its flaw."""
    attempt, traits = met_with(met), TRAITS[met]
    assert traits_of(attempt) is traits
    assert (reason_of(attempt), code_of(attempt), verdict_of(attempt)) == (traits.reason, traits.code, traits.verdict)


@pytest.mark.parametrize("rejected_by", RejectedBy)
def test_each_bar_is_one_fault(rejected_by):
    """A call that admission bars is written down as one fault, and only a fault is a bar."""
    assert Counter(each for traits in rows(Fault).values() for each in traits.rejected_by)[rejected_by] == 1
    assert not any(traits.rejected_by for traits in rows(Flaw).values())


@pytest.mark.parametrize("flaw", Flaw)
def test_a_flaw_comes_from_a_tier_that_is_well(flaw):
    """It ran and closes its breaker, whenever it may come back; and where it is asked again, it isn't for a retry."""
    traits = TRAITS[flaw]
    assert (traits.verdict, traits.verdict_with_time, traits.ran) == (Verdict.SUCCESS, None, Ran.RAN)
    assert traits.again is not Again.RETRY
    # A doubt has a switch of its own.
    assert traits.other_tier is (OtherTier.ALWAYS if flaw is Flaw.DOUBT else OtherTier.IF_ON)


@pytest.mark.parametrize("fault", Fault)
def test_a_fault_says_nothing_good_of_its_tier(fault):
    """No fault closes a breaker, is re-asked or nudged, or is a loop or a bad call."""
    traits = TRAITS[fault]
    assert Verdict.SUCCESS not in (traits.verdict, traits.verdict_with_time)
    assert traits.again in (Again.NO, Again.RETRY)
    assert traits.reason not in (Reason.LOOP_DETECTED, Reason.TOOL_VALIDATION_FAILURE)
    assert not traits.nudge
    assert not traits.tool_call


@given(st.sampled_from([*Fault, *Flaw]), waits, st.booleans())
def test_what_is_the_client_s_own_never_opens_a_breaker(met, retry_after_s, cancelled):
    """Whatever a time is told, and whether the client has left: another client's requests must not be refused for it.
    Nor is it retried, since it would be as wrong again."""
    attempt = met_with(met, retry_after_s=retry_after_s, cancelled=cancelled)
    if TRAITS[met].code in CLIENTS_OWN:
        assert verdict_of(attempt) is Verdict.IGNORED
        assert TRAITS[met].again is Again.NO


@pytest.mark.parametrize("fault", Fault)
def test_a_barred_call_says_nothing_of_its_tier(fault):
    """Where nobody was asked, nobody is unwell; only that no replica takes a call is the tier's. And a tier that is no
    candidate is passed over for nothing: no breaker, no switch, no work that may cost something."""
    traits = TRAITS[fault]

    if traits.ran is not Ran.RAN and fault is not Fault.CONNECT_TIMEOUT:
        assert traits.verdict is Verdict.IGNORED
        assert traits.other_tier is OtherTier.ALWAYS
    if traits.other_tier is OtherTier.ALWAYS:
        assert (traits.verdict, traits.verdict_with_time) == (Verdict.IGNORED, None)
        assert traits.ran is not Ran.RAN
        assert traits.again is Again.NO


@pytest.mark.parametrize("met", [*Fault, *Flaw])
def test_a_retry_is_for_what_may_pass(met):
    """Who calls a tier again after a fault believes that it may come back: then the client may believe it too, the
    breaker counts the fault, and another tier may be asked when the retries are spent."""
    traits = TRAITS[met]
    if traits.again is Again.RETRY:
        assert traits.code in PASSING
        assert (traits.verdict, traits.ran) == (Verdict.FAILURE, Ran.RAN)
        assert traits.other_tier is OtherTier.IF_ON


@pytest.mark.parametrize("met", [*Fault, *Flaw])
def test_what_every_tier_would_say_ends_the_walk(met):
    """It is a fault of the request: it isn't asked again here, opens no breaker and doesn't pass. Or this server itself
    is busy, which passes."""
    traits = TRAITS[met]
    if traits.other_tier is OtherTier.NEVER:
        assert (traits.again, traits.verdict) == (Again.NO, Verdict.IGNORED)
        assert traits.code is RefuseCode.OVERLOADED if met is Fault.UNJUDGED else traits.code in CLIENTS_OWN


@pytest.mark.parametrize("met", [*Fault, *Flaw])
def test_a_time_to_come_back_only_makes_it_pass(met):
    """A code that a time changes stays without it and passes with it; a verdict that it changes leaves a tier alone
    that would not have been."""
    traits = TRAITS[met]
    if traits.code_with_time is not None:
        assert traits.code not in PASSING
        assert traits.code_with_time in PASSING
    if traits.verdict_with_time is not None:
        assert (traits.verdict, traits.verdict_with_time) == (Verdict.IGNORED, Verdict.FAILURE)


@pytest.mark.parametrize("met", [*Fault, *Flaw])
def test_only_loops_are_nudged_and_only_calls_are_constrained(met):
    """A nudge tells of a loop; a grammar demands a call, so it is for a re-ask of a model that tried to make one."""
    traits = TRAITS[met]
    assert not traits.nudge or traits.reason is Reason.LOOP_DETECTED
    assert traits.nudge or traits.again is not Again.NUDGE
    assert not traits.tool_call or (traits.again, traits.reason) == (Again.REASK, Reason.TOOL_VALIDATION_FAILURE)


@given(st.sampled_from(Fault), waits)
def test_a_timeout_is_a_timeout_everywhere(fault, retry_after_s):
    """The reason in the header and the code of the error name the same thing, of what both have a name for."""
    both = {Reason.TIMEOUT: RefuseCode.TIMEOUT, Reason.MEMORY_PRESSURE: RefuseCode.MEMORY_PRESSURE}
    both |= {Reason.CONTEXT_LENGTH: RefuseCode.CONTEXT_LENGTH}
    attempt = met_with(fault, retry_after_s=retry_after_s)
    for reason, code in both.items():
        assert (reason_of(attempt) is reason) == (code_of(attempt) is code)
