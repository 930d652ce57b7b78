"""A calibration is worth what it says of calls that it has not seen."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.evaluate.figures import confidence
from deployments.evaluate.figures.confidence import EACH_MIN, Point, _find_auroc, are_enough, estimate_unseen


def draw_points(seed: int, count: int, *, telling: bool) -> list[Point]:
    """Draw calls with a sign that tells (two in three times) and one that says nothing."""
    dice, points = random.Random(seed), []
    for _ in range(count):
        right = dice.random() < 0.5
        said = right if telling and dice.random() < 0.9 else dice.random() < 0.5
        points.append(({"made_up": float(not said), "length": dice.random()}, right))
    return points


def test_a_sign_that_tells_gets_weight_and_one_that_does_not_gets_little():
    """Law: the sign's direction is found, its probability is that of the data, and noise moves nothing."""
    points = draw_points(1, 400, telling=True)
    fitted = confidence.fit_calibration(points)
    assert fitted.weights["made_up"] < -2
    assert abs(fitted.weights["length"]) < 1
    good, bad = fitted.estimate({"made_up": 0.0, "length": 0.5}), fitted.estimate({"made_up": 1.0, "length": 0.5})
    assert good == pytest.approx(0.95, abs=0.05)
    assert bad == pytest.approx(0.05, abs=0.05)


def test_where_nothing_tells_unseen_calls_are_told_by_chance():
    """Law: what is said of a fit never comes from the calls that it was fitted on."""
    areas = []
    for seed in range(10):
        points = draw_points(seed, 200, telling=False)
        areas.append(_find_auroc(estimate_unseen(points), [right for _, right in points]) or 0.0)
    assert sum(areas) / 10 == pytest.approx(0.5, abs=0.06)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=40))
def test_the_area_is_that_of_all_pairs_and_the_bins_hold_each_call_once(pairs: list[tuple[float, bool]]):
    """Law: right and wrong exchanged, the area is its complement; no call is lost in the bins."""
    likely, right = [one for one, _ in pairs], [hit for _, hit in pairs]
    area, other = _find_auroc(likely, right), _find_auroc(likely, [not hit for hit in right])
    judged = confidence.judge_confidence(likely, right)
    assert (area is None) == (len(set(right)) < 2)
    assert area is None or other is None or area + other == pytest.approx(1)
    assert sum(one["calls"] for one in judged["bins"]) == judged["calls"] == len(pairs)
    assert 0 <= judged["error"] <= 1


def test_few_calls_of_one_kind_are_no_ground_for_a_fit():
    """Law: both right and wrong calls are needed."""
    for right, wrong, enough in ((EACH_MIN, EACH_MIN, True), (500, EACH_MIN - 1, False), (0, 0, False)):
        assert are_enough([({}, True)] * right + [({}, False)] * wrong) is enough
