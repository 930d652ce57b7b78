"""Admission: a whole grant or nothing, closed once, and written down without loss."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.admission import events as replay
from reliability.admission.admit import AdmissionConfig, AdmissionState, admit, expire, obey, phase_of, settle
from reliability.admission.breaker import Phase
from reliability.admission.ledger import Budget
from reliability.admission.request import Grant, Policy, RejectedBy, Rejection
from reliability.admission.retry_budget import RetryBudgetLimits
from reliability.memory.pressure import Level
from reliability.types import Usage, Verdict
from tests.support.admissions import CONFIG, S, ask, barred, failed, granted


def test_a_bar_leaks_nothing() -> None:
    """When the budget or the retry budget denies a probe, its slot is still free for the next request."""
    state = failed(AdmissionState(), "fast", 2)
    for wrong in ({"prompt_tokens": 10_000}, {"extra": True}):
        config = replace(CONFIG, retries=RetryBudgetLimits(floor=0, share_percent=0))
        same, rejection = admit(state, config, ask(**wrong), S)
        assert isinstance(rejection, Rejection)
        assert same is state
    assert granted(state, S)[1].probe


@pytest.mark.parametrize(("more", "rejected_by"), [
    ({"tier": "open"}, RejectedBy.OPEN), ({"tier": "probing"}, RejectedBy.PROBING),
    ({"tier": "out"}, RejectedBy.ISOLATED), ({"prompt_tokens": 1951}, RejectedBy.BUDGET),
    ({"extra": True}, RejectedBy.RETRY_BUDGET),
    ({"level": Level.CRITICAL, "prompt_tokens": 4000}, RejectedBy.MEMORY_PRESSURE),
])  # fmt: skip
def test_every_bar_has_its_name(more: dict[str, Any], rejected_by: RejectedBy) -> None:
    """What keeps a call off is named, with a time where waiting helps."""
    state = obey(failed(failed(AdmissionState(), "probing", 2), "open", 2, S), "out", "isolate", S)
    state, _ = granted(state, S, tier="probing")
    for _ in range(5):
        state, answer = admit(state, CONFIG, ask("other", "t", extra=True), S)
    answer = barred(state, S, **more)
    assert answer.rejected_by is rejected_by
    assert answer.detail
    assert (answer.retry_after_s is None) is (rejected_by in (RejectedBy.ISOLATED, RejectedBy.BUDGET))
    assert (answer.policy is Policy.HARD_STOP) is bool(answer.windows) is (rejected_by is RejectedBy.BUDGET)


def test_settling_reports_the_breaker() -> None:
    """The settle that opens a breaker says so, and only that one."""
    state, grant = granted(failed(AdmissionState(), "fast", 1))
    state, other = granted(state)
    state, settled = settle(state, CONFIG, grant.id, Verdict.FAILURE, Usage(), 0)
    assert settled.change is not None
    assert settled.change.after is Phase.OPEN
    assert phase_of(state, "fast", 0) is Phase.OPEN
    assert phase_of(state, "fast", S) is Phase.HALF_OPEN
    assert phase_of(state, "stranger", 0) is Phase.CLOSED
    assert settle(state, CONFIG, other.id, Verdict.FAILURE, Usage(), 0)[1].change is None


def test_retry_after_reaches_the_breaker() -> None:
    """A failure with the tier's own Retry-After bars it for that time."""
    state, grant = granted(AdmissionState())
    state, _ = settle(state, CONFIG, grant.id, Verdict.FAILURE, Usage(), 0, retry_after_ns=7 * S)
    answer = barred(state)
    assert (answer.rejected_by, answer.retry_after_s) == (RejectedBy.OPEN, 7)


def test_an_expired_grant_counts_as_ignored_and_spent() -> None:
    """A grant that is never settled costs its prompt and says nothing of its tier."""
    state, grant = granted(failed(AdmissionState(), "fast", 1), hold_ns=10 * S)
    assert grant.expires_ns == 10 * S
    late, answer = settle(state, CONFIG, grant.id, Verdict.FAILURE, Usage(), 10 * S)
    assert (answer.expired, answer.tokens, answer.change) == (True, 50, None)
    closed, answers = expire(state, CONFIG, 10 * S)
    assert answers == (answer,)
    assert replace(expire(late, CONFIG, 10 * S)[0], budget=Budget()) == replace(closed, budget=Budget())
    assert late.budget.sessions == closed.budget.sessions
    assert phase_of(closed, "fast", 10 * S) is Phase.CLOSED
    assert expire(closed, CONFIG, 10 * S) == (closed, ())


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


def test_hands_reach_the_books() -> None:
    """Resetting a session frees its budget, a sweep forgets the idle, and a hold that is lifted leaves no trace."""
    opened = failed(AdmissionState(), "fast", 2)
    assert obey(obey(opened, "fast", "isolate", 0), "fast", "restore", 0) == opened
    state, grant = granted(AdmissionState(), prompt_tokens=1900)
    state, _ = settle(state, CONFIG, grant.id, Verdict.SUCCESS, None, 0)
    assert barred(state)
    forgiven, _ = replay.reduce(state, CONFIG, replay.Reset("k", "s"), 0)
    assert isinstance(admit(forgiven, CONFIG, ask(), 0)[1], Grant)
    assert replay.reduce(state, CONFIG, replay.Tick("sweep"), 300 * S)[0].budget.sessions.count == 0
    assert replay.reduce(state, CONFIG, replay.Tick("sweep"), 299 * S)[0] is state


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
    config, state = AdmissionConfig(retries=RetryBudgetLimits(share_percent=100, floor=0)), AdmissionState()
    for _ in range(5):
        state, answer = admit(state, config, ask(fallback=True), S)
        assert isinstance(answer, Grant)
    assert barred(state, S, config, extra=True).rejected_by is RejectedBy.RETRY_BUDGET
