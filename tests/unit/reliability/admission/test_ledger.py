"""The books beneath the token budget: what they remember, for how long, and how much of it."""

from dataclasses import replace

from reliability.admission.budget import Limit, loads, reserve, settle
from reliability.admission.ledger import Bounds, Budget, session_name
from reliability.admission.request import BudgetWindow, RejectedBy
from tests.support.budgets import BOUNDS, CONFIG, FREE, S, admitted, ask, refused, spent


def test_hours_forget_after_an_hour() -> None:
    """Tokens leave the hour between 60 and 61 minutes after they were charged, and not before."""
    budget = spent(Budget(), CONFIG, 150, 30 * S)
    used = [
        next(load.tokens for load in loads(budget, CONFIG, "k", "new", at * S) if load.window is BudgetWindow.HOUR)
        for at in (30, 30 + 3600, 60 + 3599, 60 + 3600)
    ]
    assert used == [150, 150, 150, 0]


def test_idle_sessions_leave() -> None:
    """An idle session counts as new once its time is over, and a sweep lets it go."""
    ttl_ns = BOUNDS.session_ttl_ns
    budget = spent(Budget(), CONFIG, 150, 0)
    assert budget.session_of(BOUNDS, "k", "s", ttl_ns - 1).spent == 150
    assert budget.session_of(BOUNDS, "k", "s", ttl_ns).spent == 0
    assert budget.sweep_sessions(BOUNDS, ttl_ns - 1) is budget
    assert budget.sweep_sessions(BOUNDS, ttl_ns).sessions.count == 0
    again, _ = reserve(budget, CONFIG, "r", ask(), ttl_ns)
    assert again.session_of(BOUNDS, "k", "s", ttl_ns).spent == 0
    busy, _ = reserve(budget, replace(CONFIG, reservation_ns=10 * ttl_ns), "r", ask(), 0)
    assert busy.sweep_sessions(BOUNDS, ttl_ns).sessions.count == 1


def test_a_full_house_refuses() -> None:
    """Where all sessions, keys or reservations that may be remembered are in use, one more is refused."""
    wide = Bounds(session_ttl_ns=10, sessions_max=1, keys_max=9, reservations_max=9)
    config = replace(FREE, bounds=wide)
    busy, _ = reserve(Budget(), config, "a", ask(session="a"), 0)
    answer = refused(busy, config, ask(session="b"))
    assert (answer.rejected_by, answer.retry_after_s) == (RejectedBy.FULL, 5)
    idle = settle(busy, config, "a", 1, 0)[0]
    assert admitted(idle, config, ask(session="b"))
    one_key = replace(FREE, bounds=replace(wide, sessions_max=9, keys_max=1))
    assert refused(busy, one_key, ask(key="l"))
    assert refused(idle, one_key, ask(key="l"))
    assert admitted(idle, one_key, ask(key="l"), 3660 * S)
    one = replace(FREE, bounds=replace(wide, reservations_max=1))
    assert refused(busy, one, ask(session="a"))


def test_the_longest_idle_session_leaves_first() -> None:
    """At the bound an idle session makes room, never a busy one, and the hour keeps its tokens."""
    config = replace(FREE, hour=Limit(tokens_max=10**6), bounds=Bounds(sessions_max=2))
    budget = spent(Budget(), config, 100, 0, session="idle")
    budget, _ = reserve(budget, config, "busy", ask(session="busy"), 5)
    budget, _ = reserve(budget, config, "new", ask(session="new"), 9)
    assert {name for name, _ in budget.sessions.items()} == {session_name("k", "busy"), session_name("k", "new")}
    assert loads(budget, config, "k", "x", 9)[0].tokens == 300


def test_reset_forgives_what_was_spent() -> None:
    """Resetting a session forgets what it has spent and keeps what it has reserved."""
    budget = spent(Budget(), CONFIG, 150, 0)
    budget, _ = reserve(budget, CONFIG, "r", ask(), 0)
    session = budget.reset_session("k", "s").session_of(BOUNDS, "k", "s", 0)
    assert (session.spent, session.reserved, session.open) == (0, 100, 1)
    assert budget.reset_session("k", "stranger") is budget


def test_sessions_belong_to_their_key() -> None:
    """The same session name under two keys is two sessions, however the names are joined."""
    budget = spent(Budget(), CONFIG, 150, 0, key="a", session="bc")
    assert budget.session_of(BOUNDS, "a", "bc", 0).spent == 150
    assert budget.session_of(BOUNDS, "ab", "c", 0).spent == 0
