"""What clients read in an error."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.errors import _OF_REFUSAL, TABLE, ApiError, from_refusal
from reliability.attempt import Attempt
from reliability.escalation.decisions import Limits, Refuse, Situation
from reliability.escalation.policies import decide
from reliability.escalation.refusals import PASSING
from reliability.faults import TRAITS, OtherTier
from reliability.types import Fault, Flaw, Reason, RefuseCode

# What litellm (for OpenHands and CrewAI), CrewAI itself and Hermes look for, 2026-11: then they condense their history.
TELLING = ("this model's maximum context length is", "maximum context length", "reduce the length")


@pytest.mark.parametrize("code", RefuseCode)
def test_a_prompt_that_fits_nowhere_is_said_in_words_that_agents_know(code):
    """They read the message, not the code; and no other error may look like it."""
    message = from_refusal(Refuse(code=code, message="tier fast can't hold this prompt")).body()["error"]["message"]

    assert message.startswith("tier fast can't hold this prompt")
    assert [words in message for words in TELLING] == [code is RefuseCode.CONTEXT_LENGTH] * len(TELLING)


# What agents ask again for whatever the headers say (2026-11: LiteLLM, Continue, qwen-code, opencode, the AI SDK).
ASKED_AGAIN = (408, 409, 425, 429, *range(500, 600))
# What opencode takes for a passing error wherever it stands in the body.
LOOKS_PASSING = re.compile(
    r"429|50[0234]|524|rate.?limit|too many requests|overloaded|(service|temporarily) unavailable"
    r"|(internal|server).error|terminated|connection (error|refused|lost)|time(d)? ?out|try again|exhausted",
    re.IGNORECASE,
)
CHAIN = ("fast", "standard", "premium")

met = st.one_of(st.sampled_from(Fault), st.sampled_from(Flaw))
waits = st.none() | st.floats(0, 86_400)


@st.composite
def attempts(draw: st.DrawFn) -> tuple[Attempt, ...]:
    """What a walk may have met, in the chain's order, and more than one thing on a tier."""
    found = []
    for tier in CHAIN:
        for what in draw(st.lists(met, max_size=3)):
            fault, flaw = (what, None) if isinstance(what, Fault) else (None, what)
            wait_s = None if fault is None else draw(waits)
            hard, out = fault is Fault.BUDGET and draw(st.booleans()), draw(st.integers(0, 9)) == 0
            found.append(
                Attempt(
                    tier=tier, ran=True, fault=fault, flaw=flaw, detail=f"tier {tier}: {what}", retry_after_s=wait_s,
                    hard_stop=hard, text_out=out,
                )
            )  # fmt: skip
    return tuple(found)


def is_one_of_two(error: ApiError) -> bool:
    """It passes, and says when to come back, or it stays, and has a status that nobody asks again for."""
    headers = error.headers()
    passes = "retry-after" in headers and "x-should-retry" not in headers and error.status in ASKED_AGAIN
    stays = "retry-after" not in headers and headers["x-should-retry"] == "false" and error.status not in ASKED_AGAIN
    return passes != stays


@pytest.mark.parametrize("code", TABLE)
@pytest.mark.parametrize("wait_s", [None, 0.0, 7.2, 1e300, float("inf"), float("nan")])
def test_an_error_passes_or_stays(code, wait_s):
    """Never both, whoever has told a time."""
    assert is_one_of_two(ApiError(code, "x", retry_after_s=wait_s))


@given(attempts(), st.integers(-1, 1))
def test_every_refusal_passes_or_stays(found, remaining_ns):
    """Over all that a walk can meet: a refusal passes exactly where something of it may pass, and the time to come back
    is one that was told, or the row's."""
    limits = Limits(retries_max=0, attempts_max=max(1, len(found)), escalate_on=frozenset(Reason))
    decision = decide(Situation(chain=CHAIN, attempts=found, remaining_ns=remaining_ns, limits=limits))
    if not isinstance(decision, Refuse):
        return
    error = from_refusal(decision)
    told = [str(max(1, -int(-a.retry_after_s // 1))) for a in found if a.retry_after_s is not None]

    assert is_one_of_two(error)
    assert error.row.retry == (decision.code in PASSING)
    if error.row.retry:
        assert error.headers()["retry-after"] in (*told, str(int(error.row.retry_after_s)))


def test_every_code_has_its_row():
    """No refusal is without a status, or has two, and the core and the table agree on what passes."""
    assert Counter(row.refusal for row in TABLE.values() if row.refusal) == Counter(RefuseCode)
    assert {code for code in RefuseCode if TABLE[_OF_REFUSAL[code]].retry} == PASSING


@pytest.mark.parametrize("fault", [fault for fault in Fault if TRAITS[fault].other_tier is OtherTier.NEVER])
def test_what_every_tier_would_refuse_is_the_client_s_error(fault):
    """It is told as a mistake in the request, which nobody asks again for; or this server is busy, which passes."""
    row = TABLE[_OF_REFUSAL[TRAITS[fault].code]]

    busy = ("rate_limit_error", True)
    assert (row.type, row.retry) == (busy if fault is Fault.UNJUDGED else ("invalid_request_error", False))
    assert 400 <= row.status < 500


@pytest.mark.parametrize("code", [code for code, row in TABLE.items() if not row.retry])
def test_what_stays_does_not_look_as_if_it_passed(code):
    """Some agents read the whole body for words of passing errors, and ask again in silence whatever the status."""
    row = TABLE[code]
    body = ApiError(code, row.meaning).body()["error"]

    assert not LOOKS_PASSING.search(f"{body['type']} {body['code']} {body['message']}")


def test_the_wait_of_a_loop_is_for_the_body():
    """Agents read bodies; a header beside `x-should-retry: false` would say two things at once."""
    error = from_refusal(Refuse(code=RefuseCode.LOOP, message="x", retry_after_s=5.0))

    assert error.body()["error"]["retry_after"] == 5
    assert "retry-after" not in error.headers()
