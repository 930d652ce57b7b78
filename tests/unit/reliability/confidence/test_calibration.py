"""How likely a call is right, by its signs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.attempt import UNMEASURED, Confidence
from reliability.confidence.calibration import UNWANTED_MIN, Calibration, Gauge, ModelCalibration
from reliability.types import Flaw, Text
from tests.support.call_values import made
from tests.support.renderings import tool
from tests.support.value_paths import judge_events

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


def test_an_invalid_call_is_as_likely_right_as_the_model_s_others() -> None:
    """Law: of a call that can't be measured what is known is its model; of other flaws, and other models, nothing."""
    known = ModelCalibration(Calibration(2.0, {}, share=0.13))
    gauge = Gauge(calibration=known, least=0.25, texts=(), request="", words_do=True)
    box = made([tool("search", {"properties": {"query": {}}, "required": ["query"]})])
    invalid = judge_events([[Text('{"name": "search", "arguments": {"nothing": 1}}')]], box)[1]
    assert invalid.flaw is Flaw.TOOL_CALL_INVALID
    assert gauge.measure(invalid, box, None) == Confidence({}, 0.13)
    assert replace(gauge, calibration=None).measure(invalid, box, None) == UNMEASURED
    assert gauge.measure(replace(invalid, flaw=Flaw.EMPTY), box, None) == UNMEASURED
