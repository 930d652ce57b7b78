"""The retry budget: amplification is bounded at every moment."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from reliability.admission.retry_budget import RetryBudget, RetryBudgetLimits, take

CONFIG = RetryBudgetLimits(share_percent=20, floor=3, window_ns=600)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0, 1, 7, 50, 333])), max_size=120))
def test_extra_calls_are_a_bounded_share(calls: list[tuple[bool, int]]) -> None:
    """In any window extra calls are at most floor plus share of first calls; first calls always run."""
    budget, now_ns = RetryBudget(), 0
    firsts: list[int] = []
    extras: list[int] = []
    for extra, wait_ns in calls:
        now_ns += wait_ns
        before = budget
        budget, answer = take(budget, CONFIG, extra, now_ns)
        if not extra:
            assert answer is None
            firsts.append(now_ns)
        elif answer is None:
            extras.append(now_ns)
            recent = sum(at + 600 > now_ns for at in extras)
            assert recent <= 3 + 0.2 * sum(at + 600 > now_ns for at in firsts)
        else:
            assert budget is before
            assert 0 < answer <= 650


@given(st.integers(0, 200))
def test_share_and_floor_are_reached(firsts: int) -> None:
    """The whole share and the whole floor can be used, and not one call more."""
    budget = RetryBudget()
    for _ in range(firsts):
        budget, _ = take(budget, CONFIG, False, 5)
    for _ in range(3 + firsts // 5):
        budget, answer = take(budget, CONFIG, True, 5)
        assert answer is None
    assert take(budget, CONFIG, True, 5)[1] is not None


@given(st.integers(0, 60), st.integers(0, 9), st.integers(0, 2))
def test_a_key_leaves_half_to_the_others(firsts: int, others: int, keys: int) -> None:
    """Law: a key has at most half of what the other keys have left, rounded up. What nobody's keys share is whole (""),
    and what one has spent is its own until it leaves the window; then waiting has helped."""
    budget = RetryBudget()
    for _ in range(firsts):
        budget, _ = take(budget, CONFIG, False, 5, "alice")
    allowed = left = 3 + firsts // 5
    for other in range(keys):
        for _ in range(others):
            budget, _ = take(budget, CONFIG, True, 5, f"other {other}")
        left -= min(others, (left + 1) // 2)
    taken = 0
    while (answered := take(budget, CONFIG, True, 5, "alice"))[1] is None:
        budget, taken = answered[0], taken + 1

    assert taken == (left + 1) // 2
    assert budget.extra.total == allowed - left + taken
    assert (take(budget, CONFIG, True, 5, "bob")[1] is None) is (left > taken)
    assert answered[1] is not None
    assert take(budget, CONFIG, True, 5 + answered[1], "alice")[1] is None
    after, _ = take(budget, CONFIG, True, 9_000, "bob")
    assert set(after.extra_by_key) == {"bob"}


def test_old_first_calls_carry_nothing() -> None:
    """A first call older than the window gives no share, even while its bucket is remembered."""
    budget = RetryBudget()
    for _ in range(100):
        budget, _ = take(budget, replace(CONFIG, floor=0), False, 1)
    assert take(budget, replace(CONFIG, floor=0), True, 599)[1] is None
    assert take(budget, replace(CONFIG, floor=0), True, 620)[1] is not None


def test_waiting_helps() -> None:
    """Where first calls don't carry the extra ones, asking again after the time given is allowed."""
    budget = RetryBudget()
    for at in (0, 100, 200):
        budget, _ = take(budget, CONFIG, True, at)
    _, answer = take(budget, CONFIG, True, 210)
    assert take(budget, CONFIG, True, 210 + answer)[1] is None
    assert take(budget, CONFIG, True, 209 + answer)[1] is not None


def test_no_floor_and_no_share_allow_nothing() -> None:
    """Both limits at 0 allow no extra call, and the answer still names a time."""
    none = replace(CONFIG, share_percent=0, floor=0)
    assert take(RetryBudget(), none, True, 0)[1] == 600
