"""The token budget: what is admitted never exceeds the limit, and nothing that was spent is forgotten."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.admission.budget import Limit, charge, expire, output_cap, reserve, settle
from reliability.admission.ledger import Bounds, Budget, session_name
from reliability.admission.request import BudgetWindow, Grant, Policy, RejectedBy
from tests.support.budgets import BOUNDS, CONFIG, FREE, S, admitted, ask, refused, spent


def test_a_charge_closes_the_door() -> None:
    """What was charged beyond the limit keeps out whoever asks next, and opens no reservation."""
    budget = charge(Budget(), CONFIG, "k", "s", 1001, 0)
    assert budget.open.count == 0
    assert budget.wake_ns is None
    answer = refused(budget, CONFIG, ask(0, 1))
    assert [load.window for load in answer.windows] == [BudgetWindow.SESSION]
    assert admitted(budget, CONFIG, ask(0, 1, session="t"))


def test_a_charge_makes_room_only_of_the_idle() -> None:
    """At the bounds a charge pushes out an idle session; where all are in use only the hour has it, and all of it."""
    config = replace(FREE, bounds=Bounds(sessions_max=1, keys_max=1, reservations_max=1))
    busy, _ = reserve(Budget(), config, "a", ask(session="a"), 0)
    full = charge(busy, config, "l", "b", 70, 0)
    assert (full.sessions, full.keys) == (busy.sessions, busy.keys)
    assert full.hour.count(0) == 100 + 70
    idle = settle(busy, config, "a", 0, 0)[0]
    after = charge(idle, config, "k", "b", 70, 0)
    assert {name for name, _ in after.sessions.items()} == {session_name("k", "b")}
    assert after.session_of(config.bounds, "k", "b", 0).spent == 70


def test_a_charge_closes_what_is_due() -> None:
    """A charge closes the reservations that have expired, as every other event does."""
    budget, _ = reserve(Budget(), CONFIG, "r", ask(), 0)
    budget = charge(budget, CONFIG, "k", "s", 5, 60 * S)
    assert budget.open.count == 0
    assert budget.session_of(BOUNDS, "k", "s", 60 * S).spent == 55


@given(st.permutations(range(6)), st.lists(st.integers(0, 100), min_size=6, max_size=6))
def test_the_order_of_settles_does_not_matter(order: list[int], used: list[int]) -> None:
    """The same settles in another order leave the same books."""
    budget = Budget()
    for n in range(6):
        budget, _ = reserve(budget, CONFIG, str(n), ask(), 0)
    straight, mixed = budget, budget
    for n in range(6):
        straight, _ = settle(straight, CONFIG, str(n), used[n], 5)
        mixed, _ = settle(mixed, CONFIG, str(order[n]), used[order[n]], 5)
    assert dict(mixed.sessions.items()) == dict(straight.sessions.items())
    assert (mixed.hour, mixed.keys, mixed.open.count) == (straight.hour, straight.keys, 0)


@pytest.mark.parametrize(("named", "cap"), [(None, 50), (10, 10), (200, 200), (201, 200), (0, 1), (-3, 1)])
def test_output_is_capped(named: int | None, cap: int) -> None:
    """A request gets what it names up to the cap, the default where it names none, and at least 1."""
    assert output_cap(CONFIG, named) == cap
    assert output_cap(replace(CONFIG, output_tokens_max=20), None) == 20
    assert output_cap(replace(CONFIG, output_tokens_max=None), 10**6) == 10**6
    assert admitted(Budget(), CONFIG, ask(0, named)).output_cap == cap


def test_none_counts_and_zero_refuses() -> None:
    """A limit of None refuses nothing but counts; a limit of 0 refuses everything and is full."""
    budget = spent(Budget(), FREE, 10**9, 0)
    assert admitted(budget, FREE, ask(10**9))
    nothing = replace(FREE, key_hours={"k": Limit(tokens_max=0)})
    answer = refused(Budget(), nothing, ask(0, 1))
    assert [(load.window, load.percent) for load in answer.windows] == [(BudgetWindow.KEY_HOUR, 100)]
    assert answer.retry_after_s is None
    later = replace(FREE, hour=Limit(tokens_max=10**9))
    assert refused(budget, later, ask())


def test_keys_have_their_own_hour() -> None:
    """Each key has its own limit, or none, and one key's tokens don't count for another."""
    config = replace(FREE, key_hours={"poor": Limit(tokens_max=100), "rich": Limit(tokens_max=500)})
    budget = spent(Budget(), config, 100, 0, key="poor")
    assert refused(budget, config, ask(key="poor"))
    assert admitted(budget, config, ask(key="other"))
    assert admitted(budget, config, ask(400, key="rich"))


def test_warnings_start_at_eighty_percent() -> None:
    """From 80 % on each full window is named with its percent, counting what is reserved."""
    budget = spent(Budget(), replace(CONFIG, hour=Limit(), key_hours={}), 699, 0)
    config = replace(CONFIG, hour=Limit(), key_hours={"k": Limit(tokens_max=10_000)})
    assert admitted(budget, config, ask(50, 50)).warnings == ()
    above = admitted(budget, config, ask(51, 50))
    assert [(load.window, load.percent) for load in above.warnings] == [(BudgetWindow.SESSION, 80)]


@pytest.mark.parametrize(("policy", "cheap", "runs"), [
    (Policy.WARN_AND_CONTINUE, False, True), (Policy.ESCALATE, False, False), (Policy.ESCALATE, True, True),
    (Policy.HARD_STOP, True, False),
])  # fmt: skip
def test_policies(policy: Policy, cheap: bool, runs: bool) -> None:
    """Beyond the limit warnings go on, escalation leaves only the cheap tier, a hard stop leaves nothing."""
    config = replace(FREE, session=Limit(tokens_max=100, policy=policy))
    if runs:
        assert [load.percent for load in admitted(Budget(), config, ask(100, cheap=cheap)).warnings] == [150]
    else:
        answer = refused(Budget(), config, ask(100, cheap=cheap))
        assert (answer.rejected_by, answer.policy) == (RejectedBy.BUDGET, policy)


def test_the_hardest_policy_decides() -> None:
    """Where several windows are full, a hard stop is reported before an escalation."""
    soft, hard = (Limit(tokens_max=10, policy=policy) for policy in (Policy.ESCALATE, Policy.HARD_STOP))
    config = replace(FREE, session=soft, hour=hard)
    answer = refused(Budget(), config, ask(cheap=True))
    assert answer.policy is Policy.HARD_STOP
    assert [load.window for load in answer.windows] == [BudgetWindow.HOUR]


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(50, 400)), min_size=1, max_size=12), st.integers(0, 900))
def test_retry_after_is_exact(calls: list[tuple[int, int]], prompt: int) -> None:
    """Asking again after the seconds given is admitted, and a minute earlier it is not."""
    config = replace(FREE, hour=Limit(tokens_max=1000))
    budget, now_ns = Budget(), 0
    for wait_s, tokens in calls:
        now_ns += wait_s * S
        if isinstance(reserve(budget, config, "x", ask(tokens - 50), now_ns)[1], Grant):
            budget = spent(budget, config, tokens, now_ns)
    _, answer = reserve(budget, config, "r", ask(prompt), now_ns)
    if isinstance(answer, Grant):
        return
    assert answer.retry_after_s is not None
    assert 1 <= answer.retry_after_s <= 61 * 60
    there_ns = now_ns + answer.retry_after_s * S
    assert admitted(budget, config, ask(prompt), there_ns)
    if answer.retry_after_s > 1:
        assert refused(budget, config, ask(prompt), there_ns - S)


def test_retry_after_knows_reservations_and_never() -> None:
    """Behind open reservations the wait is short; what is larger than the limit, or a session, never fits."""
    config = replace(FREE, key_hours={"k": Limit(tokens_max=1000)})
    budget, _ = reserve(Budget(), config, "a", ask(900), 0)
    assert [refused(budget, config, ask(tokens)).retry_after_s for tokens in (500, 2000)] == [5, None]
    session = spent(Budget(), CONFIG, 1000, 0)
    answer = refused(session, CONFIG, ask())
    assert answer.retry_after_s is None


def test_retry_after_waits_for_the_hour_too() -> None:
    """Where both spent and reserved tokens stand in the way, the spent ones give the time."""
    config = replace(FREE, hour=Limit(tokens_max=1000))
    budget = spent(Budget(), config, 600, 0)
    budget, _ = reserve(budget, config, "a", ask(250), 10 * S)
    answer = refused(budget, config, ask(750), 10 * S)
    assert answer.retry_after_s == 3600 + 60 - 10


@pytest.mark.parametrize(
    ("said", "slack", "charged"), [(None, 0, 50), (None, 32, 82), (70, 0, 70), (90, 32, 100), (400, 32, 400)]
)
def test_what_was_said_of_a_call_is_what_it_costs_if_nobody_settles(said: int | None, slack: int, charged: int) -> None:
    """Its prompt, or what was last said of it, and its slack as far as that was reserved; what a late settle brings
    beyond is added once, to the session and to the hour."""
    budget, _ = reserve(Budget(), FREE, "r", replace(ask(), local=slack == 0), 0)
    budget = budget if said is None else budget.note_progress("r", 60).note_progress("r", said)
    assert budget.session_of(FREE.bounds, "k", "s", 0).spent == 0
    now_ns = FREE.reservation_ns
    budget, (closed,) = expire(budget, now_ns)
    assert closed.tokens == charged
    for late_tokens in (charged - 1, None, 1_000, 2_000):
        late, _ = settle(budget, FREE, "r", late_tokens, now_ns)
        again, _ = settle(late, FREE, "r", 5_000, now_ns)
        assert again is late
        assert late.session_of(FREE.bounds, "k", "s", now_ns).spent == max(charged, late_tokens or 0)
        assert late.hour.spent.total == max(charged, late_tokens or 0)


@pytest.mark.parametrize(("hold_ns", "held_ns"), [(None, 60 * S), (10**18, 60 * S), (-1, 0), (7, 7)])
def test_holding_is_bounded(hold_ns: int | None, held_ns: int) -> None:
    """Nobody holds a reservation for longer than configured."""
    _, answer = reserve(Budget(), CONFIG, "r", ask(), 5, hold_ns)
    assert isinstance(answer, Grant)
    assert answer.expires_ns == 5 + held_ns


def test_negative_usage_is_none() -> None:
    """A tier that reports a negative count can't pay tokens back."""
    budget, _ = reserve(Budget(), CONFIG, "r", ask(), 0)
    assert settle(budget, CONFIG, "r", -50, 0)[0].session_of(BOUNDS, "k", "s", 0).spent == 0
