"""How likely a call is right, by its signs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.attempt import Confidence
from reliability.confidence.calibration import UNWANTED_MIN, Calibration, Gauge

signs = st.dictionaries(st.sampled_from(["made_up", "unsure", "other"]), st.floats(0, 15))


@given(signs, st.floats(-5, 5), st.floats(-3, 0))
def test_it_is_a_probability_that_falls_with_each_bad_sign(found: dict[str, float], base: float, weight: float) -> None:
    """Law: between 0 and 1; a sign with a negative weight never makes an answer likelier; an unknown one says
    nothing."""
    calibration = Calibration(base, {"made_up": weight, "unsure": weight})
    likely = calibration.estimate(found)
    assert 0.0 < likely < 1.0
    assert calibration.estimate(found | {"made_up": found.get("made_up", 0.0) + 1}) <= likely
    assert calibration.estimate({**found, "other": 9.0}) == likely


@given(st.floats(0, 1), st.none() | st.floats(0, 1), st.none() | st.floats(0, 1))
def test_a_doubt_says_what_it_is(least: float, likely: float | None, unwanted: float | None) -> None:
    """Law: a call is in doubt if it is less likely right than it has to be, or if probably no tool was wanted; never
    where it need not be right, or nobody knows."""
    gauge = Gauge(calibration=None, least=least, texts=(), request="", words_do=True)
    words = gauge.explain_doubt(Confidence({}, likely, unwanted))
    if likely is not None and likely < least:
        assert "is right with" in words
    elif least and unwanted is not None and unwanted >= UNWANTED_MIN:
        assert "no tool was wanted" in words
    else:
        assert words == ""


def test_the_log_odds_add_up() -> None:
    """Law: base and weights are log-odds."""
    assert Calibration(0.0, {}).estimate({"unsure": 3.0}) == 0.5
    assert Calibration(1.0, {"unsure": -0.5}).estimate({"unsure": 2.0}) == 0.5
    assert Calibration(2.0, {}).estimate({}) == pytest.approx(0.8808, abs=1e-4)
