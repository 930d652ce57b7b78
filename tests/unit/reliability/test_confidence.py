"""How likely a call is right: an answer's signs, and what a calibration makes of them."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from reliability import confidence
from reliability.answer.judgement import Judged
from reliability.attempt import UNMEASURED, Confidence
from reliability.confidence import Calibration, Gauge, ModelCalibration
from reliability.tools import ToolBox, build_toolbox
from reliability.types import Flaw, Text, ToolCall
from tests.support.call_values import integers, made
from tests.support.renderings import tool
from tests.support.value_paths import judge_events


def declare(*required: str, **properties: Any) -> ToolBox:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    box = build_toolbox([{"type": "function", "function": {"name": "book", "parameters": parameters}}])
    assert isinstance(box, ToolBox)
    return box


BOX = declare("city", city={"type": "string"}, nights={"type": "integer", "default": 1}, note={"type": "string"})


def read(request: str, *calls: dict[str, Any], unsure: Any = (), box: ToolBox = BOX) -> dict[str, float]:
    called = [ToolCall(id=str(i), name="book", arguments=json.dumps(call)) for i, call in enumerate(calls)]
    return confidence.read_signs(called, box, [request], request, unsure)


def test_a_value_out_of_nowhere_is_made_up() -> None:
    """Law: what stands in the conversation, and a default, is not made up; what a tool requires counts by itself."""
    assert read("a room in Oslo", {"city": "Oslo", "nights": 1})["made_up"] == 0.0
    assert read("a room in Oslo", {"city": "Paris"})["made_up"] == 1.0
    signs = read("a room in Oslo", {"city": "Oslo", "nights": 3, "note": "sea view"})
    assert (signs["made_up"], signs["made_up_optional"]) == (0.0, 2.0)
    each = {"type": "object", "properties": {"mode": {"default": "dry"}, "wind": {"type": "string"}}}
    box = declare("rooms", rooms={"type": "array", "items": each})
    assert read("hi", {"rooms": [{"mode": "dry"}, {"mode": "dry", "wind": "low"}]}, box=box)["made_up"] == 1.0


def test_what_no_argument_holds_is_unused() -> None:
    """Law: numbers and names of the request that stand in no argument are signs that something was forgotten."""
    assert read("3 nights in Oslo", {"city": "Oslo", "nights": 3})["unused_numbers"] == 0.0
    signs = read("2 nights in Oslo and 5 in Bergen, for Ann", {"city": "Oslo", "nights": 2})
    assert (signs["unused_numbers"], signs["unused_names"]) == (1.0, 2.0)
    both = read("2 nights in Oslo and 5 in Bergen", {"city": "Oslo", "nights": 2}, {"city": "Bergen", "nights": 5})
    assert both["unused_numbers"] == both["unused_names"] == 0.0
    assert both["ands_a_call"] < signs["ands_a_call"]


def test_a_tool_that_the_request_does_not_name_is_less_likely_wanted() -> None:
    """Law: of several calls the one that the request names least counts."""
    assert read("book a room", {"city": "Oslo"})["named"] == 1.0
    assert read("who won?", {"city": "Oslo"})["named"] == 0.0


def test_what_stands_far_before_the_request_tells_nothing() -> None:
    """Law: an agent's client may put any length of reminders in front of a request; the call's signs stay the same."""
    asked = "x" * 50 + " a room in Oslo for 3 nights. " + "Book it, please, as you did last time. " * 24
    plain = read(asked, {"city": "Oslo"})
    assert read("Reminder 17: Never do Anything. " * 900 + asked, {"city": "Oslo"}) == plain


def test_tokens_count_where_they_stand_in_a_call() -> None:
    """Law: words around the call, and punctuation, don't count."""
    signs = read("a room in Oslo", {"city": "Oslo"}, unsure=[("Sure", 2.0), ("Os", 0.5), ("lo", 0.25), ('"', 3.0)])
    assert (signs["most_unsure"], signs["unsure"]) == (0.5, 0.75)


@given(
    st.text(max_size=200),
    st.lists(
        st.dictionaries(
            st.text(max_size=5),
            st.recursive(st.none() | st.text() | st.floats(allow_nan=False) | integers, st.lists, max_leaves=5),
            max_size=4,
        ),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.tuples(st.text(max_size=5), st.floats(0, 50)), max_size=20),
    st.sampled_from([declare(), declare("a", a=True, b={"default": {}}), BOX]),
)
def test_any_answer_has_signs_within_bounds(request: str, calls: Any, unsure: Any, box: ToolBox) -> None:
    """Law: each sign is a number from 0 to 15, whatever was asked, called and declared."""
    signs = read(request, *calls, unsure=unsure, box=box)
    assert all(0.0 <= value <= 15.0 for value in signs.values())


def gauge_of(known: ModelCalibration | None, *texts: str, **more: float) -> Gauge:
    return Gauge(calibration=known, texts=texts, request="", words_do=True, **{"least": 0.25} | more)


def call_unchecked(*arguments: str) -> Judged:
    called = tuple(ToolCall(id=str(i), name="book", arguments=text) for i, text in enumerate(arguments))
    return replace(judge_events([[Text("Well.")]], BOX)[1], calls=called)


@given(st.lists(st.text() | st.sampled_from(["", "[1]", '"x"', "null", "{", '{"a": 1}', "[" * 9_999]), min_size=1))
def test_calls_that_nobody_checked_are_not_measured(arguments: list[str]) -> None:
    """Law: with `tool_validation` off arguments may be any text; where one is no object nothing is known."""
    known = ModelCalibration(right=Calibration(base=2.0), unwanted=Calibration(base=1.0))
    measured = gauge_of(known).measure(call_unchecked(*arguments), BOX, ())
    assert (measured == UNMEASURED) == any(text != '{"a": 1}' and not _is_object(text) for text in arguments)


@pytest.mark.parametrize(("said", "arguments", "wanted"), [
    ("First use book, then sum up.", {}, True), ("call `book`.", {}, True), ("Read the booking.", {}, False),
    ("a_book", {}, False), ("Of a_book, books and book", {}, True), ("Open the garage.", {"door": "garage"}, True),
    ("Open the garage.", {}, False),
    ("Open the garage.", {"door": "garage", "action": "open"}, True), ("Open the garage.", {"door": "cellar"}, False),
    ("Open the garage.", {"door": "garage", "speed": 5}, False),
    ("Use the available tools to answer.", {}, True), ("You act for the user, using your tools.", {}, True),
    ("Do not use any tools.", {}, False), ("Don’t use the tools here.", {}, False), ("Don't use tools.", {}, False),
    ("Answer without using a tool.", {}, False), ("Never use the functions.", {}, False),
    ("Tell me how to use a function.", {}, False), ("Don't guess, use the tools.", {}, True),
    ("A tool is of use.", {}, False), ("Use a fork. Tools are in the shed.", {}, False),
])  # fmt: skip
def test_a_tool_that_is_named_is_wanted(said: str, arguments: dict[str, object], wanted: bool) -> None:
    """Law: where the conversation names one of the tools, orders their use, or has all values of the call, however
    short the request is, no call counts as unwanted; part of a word is no name."""
    known = ModelCalibration(unwanted=Calibration(base=1.0))
    measured = gauge_of(known, "Go on.", said).measure(call_unchecked(json.dumps(arguments)), BOX, ())
    assert (measured.unwanted is None) is wanted


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


@pytest.mark.parametrize(("share", "least", "doubted"), [(0.13, 0.1, True), (0.25, 0.5, False), (0.13, 0.0, False)])
def test_a_model_that_is_seldom_right_is_never_sure(share: float, least: float, doubted: bool) -> None:
    """Law: its likeliest call is in doubt too, where calls have to be right; where nothing was measured none is."""
    gauge = gauge_of(ModelCalibration(right=Calibration(share=share)), least=least)
    assert bool(gauge.explain_doubt(Confidence({}, 0.9, None))) is doubted
    assert gauge.explain_doubt(UNMEASURED) == ""


signs = st.dictionaries(st.sampled_from(["made_up", "unsure", "other"]), st.floats(0, 15))


@given(signs, st.floats(-5, 5), st.floats(-3, 0))
def test_it_is_a_probability_that_falls_with_each_bad_sign(found: dict[str, float], base: float, weight: float) -> None:
    """Law: between 0 and 1; a sign with a negative weight never makes an answer likelier; an unknown one says
    nothing."""
    calibration = Calibration(base=base, weights={"made_up": weight, "unsure": weight})
    likely = calibration.estimate(found)
    assert 0.0 < likely < 1.0
    assert calibration.estimate(found | {"made_up": found.get("made_up", 0.0) + 1}) <= likely
    assert calibration.estimate({**found, "other": 9.0}) == likely


@given(st.floats(0, 1), st.booleans(), st.none() | st.floats(0, 1), st.none() | st.floats(0, 1))
@example(0.0, True, 0.0, 0.6)
@example(0.0, False, 0.0, 0.4)
def test_a_doubt_says_what_it_is(least: float, alone: bool, likely: float | None, unwanted: float | None) -> None:
    """Law: a call is in doubt if it is less likely right than it has to be and another tier could make a better one,
    or if probably no tool was wanted; never where nobody knows."""
    words = gauge_of(None, least=least, alone=alone).explain_doubt(Confidence({}, likely, unwanted))
    if likely is not None and likely < least and not alone:
        assert "is right with" in words
    elif unwanted is not None and unwanted >= (0.6 if alone else 0.4):
        assert "no tool was wanted" in words
    else:
        assert words == ""


@pytest.mark.parametrize("odds", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["base", "weight", "share"])
def test_what_is_no_number_is_no_calibration(odds: float, where: str) -> None:
    """Law: odds that are no numbers are refused where they are read: they would make every call certain."""
    values = {"weights": {"unsure": odds}} if where == "weight" else {where: odds}
    with pytest.raises(ValidationError):
        ModelCalibration.model_validate({"right": values})


def test_the_log_odds_add_up() -> None:
    """Law: base and weights are log-odds."""
    assert Calibration().estimate({"unsure": 3.0}) == 0.5
    assert Calibration(base=1.0, weights={"unsure": -0.5}).estimate({"unsure": 2.0}) == 0.5
    assert Calibration(base=2.0).estimate({}) == pytest.approx(0.8808, abs=1e-4)


def test_an_invalid_call_is_as_likely_right_as_the_model_s_others() -> None:
    """Law: of a call that can't be measured what is known is its model; of other flaws, and other models, nothing."""
    known = ModelCalibration(right=Calibration(base=2.0, share=0.13))
    gauge = gauge_of(known)
    box = made([tool("search", {"properties": {"query": {}}, "required": ["query"]})])
    invalid = judge_events([[Text('{"name": "search", "arguments": {"nothing": 1}}')]], box)[1]
    assert invalid.flaw is Flaw.TOOL_CALL_INVALID
    assert gauge.measure(invalid, box, None) == Confidence({}, 0.13)
    assert replace(gauge, calibration=None).measure(invalid, box, None) == UNMEASURED
    assert gauge.measure(replace(invalid, flaw=Flaw.EMPTY), box, None) == UNMEASURED
