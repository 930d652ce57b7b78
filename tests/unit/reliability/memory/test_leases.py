"""Leases on bytes: never above the budget, never longer than their holder."""

from hypothesis import given
from hypothesis import strategies as st

from reliability.memory.leases import HOLDERS_MAX, Leases, acquire, expire, release, renew
from reliability.memory.pressure import Level

BUDGET = 100
TTL = 10
NAMES = st.sampled_from("abcde")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "renew", "release"]),
        NAMES,
        st.integers(-5, 130),
        st.integers(0, 8),
        st.sampled_from(Level),
    ),
    max_size=60,
)


def ask(leases: Leases, holder: str, wanted: int, now_ns: int = 0, level: Level = Level.NORMAL):
    """One ask of tier `t`."""
    return acquire(leases, holder, "t", wanted, budget_bytes=BUDGET, level=level, ttl_ns=TTL, now_ns=now_ns)


@given(STEPS)
def test_a_grant_never_exceeds_the_budget(steps):
    """Only a renewal, which states a fact, may bring the sum above the budget; a grant never does. When nobody is heard
    of for the time to live, nothing is held and nobody waits."""
    leases, now_ns = Leases(), 0
    for what, holder, wanted, wait_ns, level in steps:
        now_ns += wait_ns
        if what == "acquire":
            before = sum(lease.bytes for name, lease in expire(leases, now_ns).held.items() if name != holder)
            leases, answer = ask(leases, holder, wanted, now_ns, level)
            assert answer.granted is (holder in leases.held) is (holder not in leases.waiting)
            assert answer.granted is (answer.why == "")
            if answer.granted and wanted > 0:
                assert before + wanted <= BUDGET
                assert level is not Level.CRITICAL
            assert answer.never is (wanted > BUDGET)
        elif what == "renew":
            leases = renew(leases, holder, "t", wanted, ttl_ns=TTL, now_ns=now_ns)
            assert leases.held[holder].bytes == max(0, wanted)
        else:
            leases = release(leases, holder)
            assert holder not in leases.held
            assert holder not in leases.waiting
        assert not set(leases.held) & set(leases.waiting)
        assert expire(leases, now_ns + TTL) == Leases()


def test_the_bytes_of_a_killed_holder_come_back_by_time():
    """A holder that renews keeps its bytes; one that doesn't gives way to the next after the time to live."""
    leases, first = ask(Leases(), "a", 60)
    leases, second = ask(leases, "b", 60, 1)
    assert (first.granted, second.granted) == (True, False)
    assert second.why == "60 bytes needed, 40 of 100 are free"
    leases = renew(leases, "a", "t", 60, ttl_ns=TTL, now_ns=5)
    leases, again = ask(leases, "b", 60, 14)
    assert not again.granted
    leases, last = ask(leases, "b", 60, 15)
    assert last.granted
    assert set(leases.held) == {"b"}


def test_what_is_in_memory_counts_after_a_restart():
    """An owner that has forgotten everything learns of the holders by their renewals, and grants beside them."""
    leases = renew(Leases(), "a", "t", 70, ttl_ns=TTL, now_ns=0)
    assert not ask(leases, "b", 31)[1].granted
    assert ask(leases, "b", 30)[1].granted


def test_more_than_the_budget_is_never():
    """What could not be held even alone is refused for good, with both numbers; zero is always granted."""
    _, answer = ask(Leases(), "a", 101)
    assert answer.never
    assert answer.why == "101 bytes needed, the node's budget is 100"
    assert ask(Leases(), "a", 0, level=Level.CRITICAL)[1].granted


def test_an_unknown_budget_and_an_unknown_level_bar_nothing():
    """Unknown is no alarm: without a budget only the level bars, and only critical does."""
    for level in Level:
        _, answer = acquire(Leases(), "a", "t", 10**12, budget_bytes=None, level=level, ttl_ns=TTL, now_ns=0)
        assert answer.granted is (level is not Level.CRITICAL)


def test_how_long_one_has_waited_is_kept():
    """Asking again keeps the place in time; the lease itself begins when it is granted."""
    leases, _ = ask(renew(Leases(), "a", "t", 100, ttl_ns=TTL, now_ns=0), "b", 10, 3)
    leases, _ = ask(leases, "b", 10, 5)
    assert leases.waiting["b"].since_ns == 3
    leases, _ = ask(release(leases, "a"), "b", 10, 7)
    assert leases.held["b"].since_ns == 7


def test_the_number_of_holders_is_bounded():
    """Beyond the bound nobody is added, whatever they ask for."""
    leases = Leases()
    for i in range(HOLDERS_MAX + 5):
        leases = renew(leases, str(i), "t", 0, ttl_ns=TTL, now_ns=0)
    assert len(leases.held) == HOLDERS_MAX
    leases, answer = ask(leases, "late", 0)
    assert not answer.granted
