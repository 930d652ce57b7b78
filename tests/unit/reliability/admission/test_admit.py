"""Admission: a whole grant or nothing, closed once, and written down without loss."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.admission import admit as admission
from reliability.admission import events as replay
from reliability.admission.admit import (
    AdmissionConfig,
    AdmissionState,
    admit,
    expire,
    obey,
    phase_of,
    reset_session,
    settle,
    sweep,
)
from reliability.admission.breaker import Phase
from reliability.admission.budget import Limit
from reliability.admission.ledger import Budget
from reliability.admission.request import AdmissionRequest, Grant, Policy, RejectedBy, Rejection
from reliability.admission.retry_budget import RetryBudgetLimits
from reliability.memory.pressure import Level
from reliability.types import Usage, Verdict
from tests.support.admissions import CONFIG, S, ask, failed, granted


def test_a_bar_leaks_nothing() -> None:
    """When the budget or the retry budget denies a probe, its slot is still free for the next request."""
    state = failed(AdmissionState(), "fast", 2)
    for wrong in ({"prompt_tokens": 10_000}, {"extra": True}):
        config = replace(CONFIG, retries=RetryBudgetLimits(floor=0, share_percent=0))
        same, rejection = admit(state, config, ask(**wrong), S)
        assert isinstance(rejection, Rejection)
        assert same is state
    assert granted(state, S)[1].probe


@pytest.mark.parametrize(
    ("more", "rejected_by"),
    [
        ({"tier": "open"}, RejectedBy.OPEN),
        ({"tier": "probing"}, RejectedBy.PROBING),
        ({"tier": "out"}, RejectedBy.ISOLATED),
        ({"prompt_tokens": 1951}, RejectedBy.BUDGET),
        ({"extra": True}, RejectedBy.RETRY_BUDGET),
        ({"level": Level.CRITICAL, "prompt_tokens": 4000}, RejectedBy.MEMORY_PRESSURE),
    ],
)
def test_every_bar_has_its_name(more: dict[str, Any], rejected_by: RejectedBy) -> None:
    """What keeps a call off is named, with a time where waiting helps."""
    state = obey(failed(failed(AdmissionState(), "probing", 2), "open", 2, S), "out", "isolate", S)
    state, _ = granted(state, S, tier="probing")
    for _ in range(5):
        state, answer = admit(state, CONFIG, ask("other", "t", extra=True), S)
    _, answer = admit(state, CONFIG, ask(**more), S)
    assert isinstance(answer, Rejection)
    assert answer.rejected_by is rejected_by
    assert answer.detail
    assert (answer.retry_after_s is None) is (rejected_by in (RejectedBy.ISOLATED, RejectedBy.BUDGET))
    assert (answer.policy is Policy.HARD_STOP) is bool(answer.windows) is (rejected_by is RejectedBy.BUDGET)


def test_settling_reports_the_breaker() -> None:
    """The settle that opens a breaker says so, and only that one."""
    state, grant = granted(AdmissionState(), tier="frail")
    state, other = granted(state, tier="frail")
    state, settled = settle(state, CONFIG, grant.id, Verdict.FAILURE, Usage(), 0)
    assert settled.change is not None
    assert settled.change.after is Phase.OPEN
    assert phase_of(state, "frail", 0) is Phase.OPEN
    assert phase_of(state, "frail", S) is Phase.HALF_OPEN
    assert phase_of(state, "stranger", 0) is Phase.CLOSED
    assert settle(state, CONFIG, other.id, Verdict.FAILURE, Usage(), 0)[1].change is None


def test_retry_after_reaches_the_breaker() -> None:
    """A failure with the tier's own Retry-After bars it for that time."""
    state, grant = granted(AdmissionState())
    state, _ = settle(state, CONFIG, grant.id, Verdict.FAILURE, Usage(), 0, retry_after_ns=7 * S)
    _, answer = admit(state, CONFIG, ask(), 0)
    assert isinstance(answer, Rejection)
    assert (answer.rejected_by, answer.retry_after_s) == (RejectedBy.OPEN, 7)


def test_an_expired_grant_counts_as_ignored_and_spent() -> None:
    """A grant that is never settled costs its prompt and says nothing of its tier."""
    state, grant = granted(AdmissionState(), tier="frail")
    assert grant.expires_ns == 10 * S
    late, answer = settle(state, CONFIG, grant.id, Verdict.FAILURE, Usage(), 10 * S)
    assert (answer.expired, answer.tokens, answer.change) == (True, 50, None)
    closed, answers = expire(state, CONFIG, 10 * S)
    assert answers == (answer,)
    assert replace(expire(late, CONFIG, 10 * S)[0], budget=Budget()) == replace(closed, budget=Budget())
    assert late.budget.sessions == closed.budget.sessions
    assert phase_of(closed, "frail", 10 * S) is Phase.CLOSED
    assert expire(closed, CONFIG, 10 * S) == (closed, ())


def test_lost_grants_open_no_breaker() -> None:
    """However many grants are never settled, none counts as a failure, though its permit would still live."""
    state = AdmissionState()
    for session in "abc":
        state, _ = granted(state, session=session)
    state, answers = expire(state, CONFIG, 30 * S)
    assert len(answers) == 3
    assert phase_of(state, "fast", 30 * S) is Phase.CLOSED
    assert state.breakers["fast"].consecutive == 0


def test_lives_share_no_names() -> None:
    """Two lives that start from the same snapshot give different names, however their epochs are spelled."""
    names = []
    for epoch in ("1", "11"):
        state = AdmissionState(epoch=epoch)
        for _ in range(12):
            state, grant = granted(state)
            names.append(grant.id)
            state, _ = settle(state, CONFIG, grant.id, Verdict.SUCCESS, Usage(), 0)
    assert len(set(names)) == 24


def test_the_grant_carries_the_cap_and_warnings() -> None:
    """The grant says what may be generated, that it is less than named, and which windows are nearly full."""
    config = replace(CONFIG, budget=replace(CONFIG.budget, output_tokens_max=60))
    _, grant = admit(AdmissionState(), config, ask(prompt_tokens=1600, output_tokens=80), 0)
    assert isinstance(grant, Grant)
    assert (grant.output_cap, grant.capped, grant.tokens) == (60, True, 1660)
    assert [load.percent for load in grant.warnings] == [83]


def test_escalation_leaves_the_cheap_tier() -> None:
    """Under `escalate` a session beyond its budget goes on with the cheap tier only."""
    limit = Limit(tokens_max=10, policy=Policy.ESCALATE)
    config = replace(CONFIG, budget=replace(CONFIG.budget, session=limit))
    dear = admit(AdmissionState(), config, ask(), 0)[1]
    assert isinstance(dear, Rejection)
    assert dear.policy is Policy.ESCALATE
    assert isinstance(admit(AdmissionState(), config, ask(cheap=True), 0)[1], Grant)


def test_tiers_are_bounded() -> None:
    """A stream of invented tier names doesn't grow the state beyond its bound, by asking or by hand."""
    state = AdmissionState()
    for n in range(admission.TIERS_MAX):
        state = obey(state, f"t{n}", "isolate", 0)
    assert obey(state, "one more", "isolate", 0) is state
    assert obey(state, "one more", "restore", 0) is state
    _, answer = admit(state, CONFIG, ask("one more"), 0)
    assert isinstance(answer, Rejection)
    assert answer.rejected_by is RejectedBy.FULL
    assert isinstance(admit(obey(state, "t1", "restore", 0), CONFIG, ask("t1"), 0)[1], Grant)


def test_a_full_house_is_named() -> None:
    """Where no further reservation is remembered, the bar says so and gives a short time."""
    state = AdmissionState()
    for n in range(8):
        state, _ = granted(state, session=str(n % 4))
    _, answer = admit(state, CONFIG, ask(session="1"), 0)
    assert isinstance(answer, Rejection)
    assert (answer.rejected_by, answer.retry_after_s) == (RejectedBy.FULL, 5)


def test_grants_of_an_older_life_can_be_settled() -> None:
    """After a restart the drivers that survived still settle what they were granted."""
    state, grant = granted(AdmissionState(epoch="1"))
    state = replace(state, epoch="11")
    state, newer = granted(state)
    assert newer.id != grant.id
    state, answer = settle(state, CONFIG, grant.id, Verdict.SUCCESS, Usage(prompt_tokens=7), 1)
    assert (answer.known, answer.tokens) == (True, 7)


def test_hands_reach_the_books() -> None:
    """Resetting a session frees its budget, a sweep forgets the idle, and a hold that is lifted leaves no trace."""
    opened = failed(AdmissionState(), "fast", 2)
    assert obey(obey(opened, "fast", "isolate", 0), "fast", "restore", 0) == opened
    state, grant = granted(AdmissionState(), prompt_tokens=1900)
    state, _ = settle(state, CONFIG, grant.id, Verdict.SUCCESS, None, 0)
    assert isinstance(admit(state, CONFIG, ask(), 0)[1], Rejection)
    assert isinstance(admit(reset_session(state, "k", "s"), CONFIG, ask(), 0)[1], Grant)
    assert sweep(state, CONFIG, 300 * S).budget.sessions.count == 0
    assert sweep(state, CONFIG, 299 * S) is state


def test_a_grant_without_its_record_changes_nothing() -> None:
    """A reservation that is open under no grant is closed without touching any breaker."""
    state, grant = granted(AdmissionState())
    broken = replace(state, grants=state.grants.drop(grant.id))
    after, answer = settle(broken, CONFIG, grant.id, Verdict.FAILURE, Usage(), 0)
    assert not answer.known
    assert after.breakers == broken.breakers


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3000)), max_size=30))
def test_older_states_stay_valid(calls: list[tuple[str, int]]) -> None:
    """A reducer never changes the state that it was given."""
    state = AdmissionState()
    versions = []
    for session, tokens in calls:
        versions.append((state, replay.to_plain(state)))
        state, answer = admit(state, CONFIG, ask(session=session, prompt_tokens=tokens), 0)
        if isinstance(answer, Grant) and tokens % 2:
            state, _ = settle(state, CONFIG, answer.id, Verdict.FAILURE, Usage(prompt_tokens=tokens), 0)
    for version, plain in versions:
        assert replay.to_plain(version) == plain


def test_a_fallback_is_neither_first_nor_extra():
    """It runs where no extra call is left, and buys none: the share is one of requests."""
    config = AdmissionConfig(retries=RetryBudgetLimits(share_percent=100, floor=0))
    call = AdmissionRequest(tier="t", key="k", session="s", prompt_tokens=1, output_tokens=1)
    state = AdmissionState()
    for _ in range(5):
        state, answer = admission.admit(state, config, replace(call, fallback=True), S)
        assert isinstance(answer, Grant)
    _, answer = admission.admit(state, config, replace(call, extra=True), S)

    assert isinstance(answer, Rejection)
    assert answer.rejected_by is RejectedBy.RETRY_BUDGET
