"""Shares with intervals, medians with spread, and what chance makes of a difference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.evaluate.figures.shares import _find_interval, describe_share, describe_spread, find_sign_p

runs = st.integers(1, 2_000)


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0),
        (1, 1, 0.2065, 1.0),
        (81, 263, 0.2553, 0.3662),
    ],
)
def test_wilsons_interval_is_that_of_the_books(hits, count, low, high):
    """The last one is the example of Newcombe, 1998."""
    assert _find_interval(hits, count) == pytest.approx((low, high), abs=5e-5)


@given(runs.flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_interval_holds_its_share_and_stays_within_all(pair):
    """And more runs of the same share make it no wider."""
    hits, count = pair
    low, high = _find_interval(hits, count)
    closer = _find_interval(4 * hits, 4 * count)

    assert 0 <= low <= hits / count <= high <= 1
    assert closer[1] - closer[0] <= high - low + 1e-12


@given(runs.flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_what_is_said_of_hits_is_said_of_misses(pair):
    """The interval of the misses is the mirror of that of the hits."""
    hits, count = pair
    low, high = _find_interval(hits, count)

    assert _find_interval(count - hits, count) == pytest.approx((1 - high, 1 - low))


def test_no_runs_say_nothing():
    """The interval is everything, and there is no share."""
    assert describe_share(0, 0) == {"hits": 0, "runs": 0, "share": None, "low": 0.0, "high": 1.0}
    assert describe_spread([]) is None


def test_a_spread_is_median_least_and_most():
    """As measured, without a model of the noise."""
    assert describe_spread([3.0, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 3.0, "runs": 3}


@given(st.integers(0, 60), st.integers(0, 60))
def test_chance_is_one_of_both_sides(worse, better):
    """A difference can't be unlikely in both directions, and nothing changed is what chance does always."""
    p = find_sign_p(worse, better)

    assert 0 < p <= 1
    assert p + find_sign_p(better, worse) > 0.999999


def test_five_of_five_is_more_than_chance():
    """And four of four isn't, at 5 %."""
    assert find_sign_p(5, 0) == 1 / 32
    assert find_sign_p(4, 0) > 0.05
    assert find_sign_p(0, 0) == 1.0
