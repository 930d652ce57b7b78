"""Rolling sums."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.rolling import Rolling, Span

SPAN = Span(100, 10)
ENTRIES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=60)


def filled(entries: list[tuple[int, int]]) -> tuple[Rolling, list[tuple[int, int]], int]:
    """A window, the entries as (time, amount), and the time after them."""
    rolling, now_ns, log = Rolling(), 0, []
    for wait_ns, amount in entries:
        now_ns += wait_ns
        rolling = rolling.add(SPAN, amount, now_ns)
        log.append((now_ns, amount))
    return rolling, log, now_ns


@given(ENTRIES, st.integers(0, 200))
def test_the_sum_never_says_too_little(entries: list[tuple[int, int]], wait_ns: int) -> None:
    """Everything younger than the window is in the sum, nothing older than window and bucket together is. A window has
    a bounded number of buckets, and its sum is that of its buckets."""
    rolling, log, now_ns = filled(entries)
    assert len(rolling.buckets) <= 100 // 10 + 2
    assert rolling.total == sum(amount for _, amount in rolling.buckets)
    now_ns += wait_ns
    total = rolling.drop_expired(SPAN, now_ns).total
    assert total >= sum(amount for at, amount in log if at + 100 > now_ns)
    assert total <= sum(amount for at, amount in log if at + 110 > now_ns)
    inner = rolling.inner_total(SPAN, now_ns)
    assert inner <= sum(amount for at, amount in log if at + 100 > now_ns)
    assert inner >= sum(amount for at, amount in log if at + 90 > now_ns)


@given(ENTRIES, st.integers(0, 300))
def test_it_says_when_room_comes(entries: list[tuple[int, int]], amount: int) -> None:
    """At the time given that much has left, a nanosecond before it has not."""
    rolling, _, now_ns = filled(entries)
    wait_ns = rolling.frees_in_ns(SPAN, amount, now_ns)
    if wait_ns is None:
        assert amount > rolling.total
        return
    assert rolling.total - rolling.drop_expired(SPAN, now_ns + wait_ns).total >= amount
    if wait_ns > 0:
        assert rolling.total - rolling.drop_expired(SPAN, now_ns + wait_ns - 1).total < amount


def test_an_entry_leaves_with_its_whole_bucket() -> None:
    """An entry from the end of a bucket stays for its window, one from its beginning a bucket longer."""
    late, early = Rolling().add(SPAN, 1, 9), Rolling().add(SPAN, 1, 0)
    assert [late.drop_expired(SPAN, at).total for at in (108, 109, 110)] == [1, 1, 0]
    assert [early.drop_expired(SPAN, at).total for at in (99, 109, 110)] == [1, 1, 0]
    assert [late.inner_total(SPAN, at) for at in (99, 100)] == [1, 0]


def test_a_clock_that_steps_back_keeps_entries() -> None:
    """An entry from the past counts with the newest bucket: it leaves late, never early."""
    rolling = Rolling().add(SPAN, 1, 1000).add(SPAN, 1, 5)
    assert rolling.buckets == ((100, 2),)


@pytest.mark.parametrize(("window_ns", "bucket_ns"), [(10, 0), (10, 11), (0, 0)])
def test_a_window_needs_a_bucket(window_ns: int, bucket_ns: int) -> None:
    """A bucket is positive and no longer than its window."""
    with pytest.raises(ValueError, match="bucket_ns"):
        Span(window_ns, bucket_ns)
