"""What explains a refusal best, which of several reasons is told, and in which words."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reliability.admission.admit import AdmissionConfig, AdmissionState, admit, charge
from reliability.admission.budget import BudgetConfig, Limit
from reliability.admission.request import AdmissionRequest, BudgetWindow, Load, Policy, RejectedBy, Rejection
from reliability.attempt import Attempt
from reliability.escalation import refusals
from reliability.escalation.refusals import _describe_rejection, code_of, describe_attempts, rank_attempt, verdict_of
from reliability.types import Fault, Flaw, RefuseCode, Verdict
from tests.unit.reliability.escalation.test_policies import CHAIN, decide_on, met

waits = st.none() | st.floats(0, 86_400)


def attempt_of(tier: str, what: Fault | Flaw, retry_after_s: float | None) -> Attempt:
    return met(what, tier, f"{tier}: {what}", retry_after_s=retry_after_s)


LOOP = attempt_of("fast", Flaw.LOOP, None)
attempts = st.builds(attempt_of, st.just("fast"), st.sampled_from([*Fault, *Flaw]), waits)


@given(attempts, attempts)
def test_what_passes_is_more_telling_than_what_stays(one, other):
    """An agent that asks again is right where anything may come back."""
    if refusals.passes(one) and not refusals.passes(other):
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
def test_a_loop_explains_no_refusal_where_anything_else_does(other):
    """What is in the way of an answer is what the other tier said; that this one's model repeats itself isn't."""
    if code_of(other) in refusals.CODE_RANKING and other.flaw is not Flaw.LOOP:
        assert rank_attempt(other) < rank_attempt(LOOP)


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.CRASHED, Fault.PROTOCOL, Fault.AUTH, Fault.IDLE_TIMEOUT])
def test_a_fault_of_the_tier_is_a_failure(fault):
    """The breaker hears of it; but not where the client had left."""
    assert verdict_of(met(fault)) is Verdict.FAILURE
    assert verdict_of(met(fault, cancelled=True)) is Verdict.IGNORED


def test_a_request_blames_a_tier_once():
    """Law: however often a request fails at a tier, the breaker counts one failure; another tier's is its own."""
    failed = [met(Fault.SERVER_ERROR, tier) for tier in ("fast", "slow", "fast", "fast", "slow")]
    verdicts = [verdict_of(attempt, failed[:at]) for at, attempt in enumerate(failed)]

    assert verdicts == [Verdict.FAILURE] * 2 + [Verdict.IGNORED] * 3
    assert verdict_of(met(None), failed) is Verdict.SUCCESS
    assert verdict_of(failed[0], [met(None), replace(failed[0], cancelled=True)]) is Verdict.FAILURE


def test_a_full_tier_that_says_until_when_is_left_alone():
    """429 with Retry-After is a failure with a known end; without it nothing is known."""
    assert verdict_of(met(Fault.OVERLOADED)) is Verdict.IGNORED
    assert verdict_of(met(Fault.OVERLOADED, retry_after_s=3.0)) is Verdict.FAILURE


@pytest.mark.parametrize("rejected_by", list(RejectedBy))
def test_every_bar_has_its_fault(rejected_by):
    """A call that was not let through is written down: nothing ran, and the reason is said."""
    load = Load(BudgetWindow.HOUR, 90, 80, 112)
    rejection = Rejection("fast", rejected_by, "why", 2.0, Policy.HARD_STOP, (load,), 20)
    attempt = refusals.record_rejection(rejection, wanting(30, "s"))

    assert not attempt.ran
    assert attempt.fault is not None
    assert attempt.detail
    assert "was not called" not in attempt.detail
    assert attempt.hard_stop == (rejected_by is RejectedBy.BUDGET)


WITHOUT_TIMES = [
    (Fault.UNAVAILABLE, Fault.UNAVAILABLE, RefuseCode.NO_TIER_EVER),
    (Fault.AUTH, Fault.CLOUD_BARRED, RefuseCode.NO_TIER_EVER),
    (Fault.CLOUD_BARRED, Fault.CLOUD_BARRED, RefuseCode.CLOUD_BARRED),
    (Fault.LOADING, Fault.UNAVAILABLE, RefuseCode.LOADING),
    (Fault.CONTEXT_LENGTH, Fault.UNAVAILABLE, RefuseCode.CONTEXT_LENGTH),
    (Fault.UNSUPPORTED, Fault.UNAVAILABLE, RefuseCode.UNSUPPORTED),
    (Fault.SERVER_ERROR, Fault.UNAVAILABLE, RefuseCode.UPSTREAM),
    (Fault.IDLE_TIMEOUT, Fault.UNAVAILABLE, RefuseCode.TIMEOUT),
    (Fault.OVERLOADED, Fault.SERVER_ERROR, RefuseCode.OVERLOADED),
    (Fault.UNSUPPORTED, Fault.CONTEXT_LENGTH, RefuseCode.CONTEXT_LENGTH),
    (Fault.MEMORY_PRESSURE, Fault.UNAVAILABLE, RefuseCode.MEMORY_PRESSURE),
    # Isolated by hand, and without a word on when: only a person can help.
    (Fault.BREAKER_OPEN, Fault.UNAVAILABLE, RefuseCode.NO_TIER_EVER),
]


@pytest.mark.parametrize(
    ("found", "code", "wait_s"),
    [
        *((((one, None), (other, None)), code, None) for one, other, code in WITHOUT_TIMES),
        (((Fault.OVERLOADED, 9.0), (Fault.OVERLOADED, 4.0)), RefuseCode.OVERLOADED, 4.0),
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
def test_what_passes_comes_before_what_stays(found, code, wait_s):
    """An agent that asks again is right where anything may come back, and wrong where nothing can. Of several reasons
    the most telling is the code, every tier's stands in the message, and the client is told the earliest moment."""
    attempts = [attempt_of(tier, what, wait) for tier, (what, wait) in zip(CHAIN, found, strict=False)]
    decision = decide_on(*attempts, chain=CHAIN[: len(found)])
    assert (decision.code, decision.retry_after_s) == (code, wait_s)
    assert all(attempt.detail in decision.message for attempt in attempts)


@pytest.mark.parametrize(
    ("first", "then", "code", "wait_s"),
    [
        ((Fault.SERVER_ERROR, None), (Fault.RETRY_BUDGET, 12.0), RefuseCode.UPSTREAM, None),
        ((Flaw.TOOL_CALL_INVALID, None), (Fault.RETRY_BUDGET, 12.0), RefuseCode.NO_TIER, 12.0),
        ((Fault.SERVER_ERROR, 3.0), (Flaw.TOOL_CALL_INVALID, None), RefuseCode.INVALID_ANSWER, None),
    ],
)
def test_of_one_tier_its_end_counts(first, then, code, wait_s):
    """What was wrong says more than that it couldn't be tried again; where a re-ask was barred, it may come later. A
    tier that broke once and then gave a bad answer is not down."""
    decision = decide_on(attempt_of("fast", *first), attempt_of("fast", *then), chain=CHAIN[:1])
    assert (decision.code, decision.retry_after_s) == (code, wait_s)


def test_the_words_are_bounded_and_said_once():
    """Ten tiers that the same budget bars are one clause; a long word of a tier is cut."""
    same = tuple(met(Fault.BUDGET, f"t{n}", "this session is spent", ran=False) for n in range(10))
    long = tuple(met(Fault.AUTH, f"t{n}", f"{n}" * 9_000) for n in range(10))
    assert describe_attempts(same) == "this session is spent"
    assert len(describe_attempts(long)) <= refusals.ATTEMPTS_CHARS_MAX


SIZES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
SPENT = 616_827


def value(text: str) -> float:
    """The number behind a figure."""
    number, _, unit = text.removeprefix("about ").partition(" ")
    return float(number.replace(",", "")) * SIZES.get(unit, 1)


@given(st.integers(0, refusals.FIGURE_MAX) | st.sampled_from([429, 500, 503, 524]).map(lambda n: n * 10**6))
@example(500_000)
@example(1_500_000)
@example(429)
@example(503_000)
@example(500_000_000_000)
def test_a_figure_is_the_number_and_looks_like_no_status(number):
    """Exact, unless it says "about"; and none of its digits make an agent think that the error passes."""
    text = refusals.figure(number)
    assert not refusals.LIKE_A_STATUS.search(text)
    assert value(text) == pytest.approx(number, rel=0.06 if text.startswith("about") else 1e-9)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (SPENT, "616,827"), (500_000, "0.5 million"), (2_000_000, "2,000,000"), (500, "0.5 thousand")],
)
def test_a_figure_reads_well(number, text):
    """Separators where it is long, another unit where it must be."""
    assert refusals.figure(number) == text


@given(st.floats(0, 86_400))
def test_a_wait_is_never_told_too_short(seconds):
    """Seconds up to two minutes, then minutes."""
    number, _, unit = refusals.duration(seconds).rpartition(" ")
    assert value(number) * {"s": 1, "min": 60}[unit] >= seconds * (0.94 if number.startswith("about") else 1)


def refused(
    spent: int,
    asked: int,
    *,
    named: str = "job-1",
    held: int = 0,
    session: int | None = None,
    hour: int | None = None,
    policy: Policy = Policy.HARD_STOP,
) -> tuple[Rejection, AdmissionRequest]:
    """What a call hears that wants `asked` tokens where `spent` are spent and open calls hold `held`."""
    limits = {"session": Limit(tokens_max=session, policy=policy), "hour": Limit(tokens_max=hour, policy=policy)}
    config, state = AdmissionConfig(budget=BudgetConfig(**limits)), AdmissionState(epoch="e")
    state = charge(state, config, "k", named, spent, 0)
    if held:
        state, _ = admit(state, config, wanting(held, named), 0)
    _, answer = admit(state, config, wanting(asked, named), 1)
    assert isinstance(answer, Rejection)
    return answer, wanting(asked, named)


def wanting(tokens: int, session: str) -> AdmissionRequest:
    return AdmissionRequest(tier="fast", key="k", session=session, prompt_tokens=tokens - 10, output_tokens=10)


RESET = (
    "start a new session (another X-MLX-Stack-Session), raise the limit, or POST /v1/reliability/sessions/job-1/reset"
)
MAY_TAKE = "this request may take 30"
SESSION = "tokens (reliability.token_budget.per_session)"
HOUR = "tokens of an hour (reliability.token_budget.per_hour)"


@pytest.mark.parametrize(("what", "wait_s", "told"), [
    ({"spent": SPENT, "asked": 900, "session": 500_000}, None,
     f"this session has used 616,827 of its 0.5 million {SESSION}: {RESET}"),
    ({"spent": 80, "asked": 30, "session": 100}, None,
     f"this session has used 80 of its 100 {SESSION}, {MAY_TAKE}: {RESET}"),
    ({"spent": 40, "asked": 30, "held": 50, "session": 100}, 5,
     f"this session has used 40 of its 100 {SESSION}, open calls hold 50, {MAY_TAKE}: come back in 5 s, or raise the "
     "limit"),
    ({"spent": 0, "asked": 130, "session": 100}, None,
     f"this request may take 130 tokens, and this session may take 100 {SESSION}: shorten it, ask for fewer "
     "`max_tokens`, or raise the limit"),
    ({"spent": 80, "asked": 30, "hour": 100}, 3660,
     f"all sessions together have used 80 of the 100 {HOUR}, {MAY_TAKE}: come back in 61 min, or raise the limit"),
    ({"spent": 80, "asked": 30, "session": 100, "policy": Policy.ESCALATE}, None,
     f"this session has used 80 of its 100 {SESSION}, {MAY_TAKE}: {RESET}, and until then only the cheapest tier "
     "answers"),
])  # fmt: skip
def test_a_budget_says_what_happened_and_what_helps(what, wait_s, told):
    """The figures are those of the ledger; a time to come back stands there exactly where one helps."""
    rejection, ask = refused(**what)
    assert rejection.retry_after_s == wait_s
    assert _describe_rejection(rejection, ask) == told


@pytest.mark.parametrize("name", ["c-12500ab", "two words", "a/b", "x" * 100, "c-429"])
def test_a_session_whose_name_misleads_is_not_named(name):
    """It would not stand in a path as it is, or look like a status; the header has it anyway."""
    told = _describe_rejection(*refused(SPENT, 900, named=name, session=600_000))
    assert "/v1/reliability/sessions/{id}/reset" in told
    assert name not in told


@pytest.mark.parametrize("rejected_by", sorted(set(RejectedBy) - {RejectedBy.BUDGET}))
def test_every_rejection_names_its_tier_and_a_way_out(rejected_by):
    """Who is rejected hears which tier, and when to come back or which route helps."""
    wait_s = None if rejected_by is RejectedBy.ISOLATED else 7.0
    rejection = Rejection("fast", rejected_by, "critical: prompt_tokens >= 4000", wait_s)
    told = _describe_rejection(rejection, wanting(20, "s"))

    assert told.startswith("tier fast ")
    assert ("/restore" if wait_s is None else "7 s") in told
    assert "{" not in told
    figures = "(critical: prompt tokens >= 4,000)" in told
    assert figures == (rejected_by in (RejectedBy.MEMORY_PRESSURE, RejectedBy.FULL))
