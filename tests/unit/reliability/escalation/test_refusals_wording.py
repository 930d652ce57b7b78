"""What a refusal says: the figures are true, the way out is named, and no machine takes it for what it isn't."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reliability.admission.admit import AdmissionConfig, AdmissionState, admit, charge
from reliability.admission.budget import BudgetConfig, Limit
from reliability.admission.request import AdmissionRequest, Policy, RejectedBy, Rejection
from reliability.escalation.refusals import FIGURE_MAX, LIKE_A_STATUS, _describe_rejection, duration, figure

SIZES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
SPENT = 616_827


def value(text: str) -> float:
    """The number behind a figure."""
    number, _, unit = text.removeprefix("about ").partition(" ")
    return float(number.replace(",", "")) * SIZES.get(unit, 1)


@given(st.integers(0, FIGURE_MAX) | st.sampled_from([429, 500, 503, 524]).map(lambda n: n * 10**6))
@example(500_000)
@example(1_500_000)
@example(429)
@example(503_000)
@example(500_000_000_000)
def test_a_figure_is_the_number_and_looks_like_no_status(number):
    """Exact, unless it says "about"; and none of its digits make an agent think that the error passes."""
    text = figure(number)
    assert not LIKE_A_STATUS.search(text)
    assert value(text) == pytest.approx(number, rel=0.06 if text.startswith("about") else 1e-9)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (SPENT, "616,827"), (500_000, "0.5 million"), (2_000_000, "2,000,000"), (500, "0.5 thousand")],
)
def test_a_figure_reads_well(number, text):
    """Separators where it is long, another unit where it must be."""
    assert figure(number) == text


@given(st.floats(0, 86_400))
def test_a_wait_is_never_told_too_short(seconds):
    """Seconds up to two minutes, then minutes."""
    number, _, unit = duration(seconds).rpartition(" ")
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


RESET = "raise the limit, or POST /v1/reliability/sessions/job-1/reset"
SESSION = "tokens (reliability.token_budget.per_session)"
HOUR = "tokens of an hour (reliability.token_budget.per_hour)"


@pytest.mark.parametrize(
    ("what", "wait_s", "told"),
    [
        (
            {"spent": SPENT, "asked": 900, "session": 500_000},
            None,
            f"this session has used 616,827 of its 0.5 million {SESSION}: start a new session (another "
            f"X-MLX-Stack-Session), {RESET}",
        ),
        (
            {"spent": 80, "asked": 30, "session": 100},
            None,
            f"this session has used 80 of its 100 {SESSION}, this request may take 30: start a new session (another "
            f"X-MLX-Stack-Session), {RESET}",
        ),
        (
            {"spent": 40, "asked": 30, "held": 50, "session": 100},
            5,
            f"this session has used 40 of its 100 {SESSION}, open calls hold 50, this request may take 30: come back "
            "in 5 s, or raise the limit",
        ),
        (
            {"spent": 0, "asked": 130, "session": 100},
            None,
            f"this request may take 130 tokens, and this session may take 100 {SESSION}: shorten it, ask for fewer "
            "`max_tokens`, or raise the limit",
        ),
        (
            {"spent": 80, "asked": 30, "hour": 100},
            3660,
            f"all sessions together have used 80 of the 100 {HOUR}, this request may take 30: come back in 61 min, or "
            "raise the limit",
        ),
        (
            {"spent": 80, "asked": 30, "session": 100, "policy": Policy.ESCALATE},
            None,
            f"this session has used 80 of its 100 {SESSION}, this request may take 30: start a new session (another "
            f"X-MLX-Stack-Session), {RESET}, and until then only the cheapest tier answers",
        ),
    ],
)
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


@pytest.mark.parametrize(
    "rejected_by", [rejected_by for rejected_by in RejectedBy if rejected_by is not RejectedBy.BUDGET]
)
def test_every_rejection_names_its_tier_and_a_way_out(rejected_by):
    """Who is rejected hears which tier, and when to come back or which route helps."""
    rejection = Rejection(
        "fast", rejected_by, "critical: prompt_tokens >= 4000", None if rejected_by is RejectedBy.ISOLATED else 7.0
    )
    told = _describe_rejection(rejection, wanting(20, "s"))

    assert told.startswith("tier fast ")
    assert ("/restore" in told) if rejected_by is RejectedBy.ISOLATED else ("7 s" in told)
    assert "{" not in told
    assert ("(critical: prompt tokens >= 4,000)" in told) == (
        rejected_by in (RejectedBy.MEMORY_PRESSURE, RejectedBy.FULL)
    )
