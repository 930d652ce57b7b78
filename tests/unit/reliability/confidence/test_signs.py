"""The signs of an answer: what tells a right call from a wrong one."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reliability.confidence.signs import read_signs
from reliability.tools import ToolBox, build_toolbox
from reliability.types import ToolCall


def declare(*required: str, **properties: Any) -> ToolBox:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    box = build_toolbox([{"type": "function", "function": {"name": "book", "parameters": parameters}}])
    assert isinstance(box, ToolBox)
    return box


BOX = declare("city", city={"type": "string"}, nights={"type": "integer", "default": 1}, note={"type": "string"})


def read(request: str, *calls: dict[str, Any], unsure: Any = (), box: ToolBox = BOX) -> dict[str, float]:
    called = [ToolCall(id=str(i), name="book", arguments=json.dumps(call)) for i, call in enumerate(calls)]
    return read_signs(called, box, [request], request, unsure)


def test_a_value_out_of_nowhere_is_made_up() -> None:
    """Law: what stands in the conversation, and a default, is not made up; what a tool requires counts by itself."""
    assert read("a room in Oslo", {"city": "Oslo", "nights": 1})["made_up"] == 0.0
    assert read("a room in Oslo", {"city": "Paris"})["made_up"] == 1.0
    signs = read("a room in Oslo", {"city": "Oslo", "nights": 3, "note": "sea view"})
    assert (signs["made_up"], signs["made_up_optional"]) == (0.0, 2.0)


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
            st.recursive(st.none() | st.text() | st.floats(allow_nan=False) | st.integers(), st.lists, max_leaves=5),
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
