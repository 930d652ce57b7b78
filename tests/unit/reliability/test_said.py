"""What a text says, and which plain values a value has."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reliability.said import LEAVES_MAX, Said, list_leaves, split_words
from tests.support.call_values import integers


@pytest.mark.parametrize(("text", "value", "missing"), [
    ("flights to New York", "new york", 0.0), ("flights to New York on the 5th", "New York, on 5th", 0.0),
    ("all orders of today", "order", 0.0), ("raise it by ten percent", 10, 0.0), ("raise it by 10%", 0.1, 0.0),
    ("about 5,000 people", 5000, 0.0), ("5 thousand people", 5, 0.0), ("4 kilometers", 4000, 0.0),
    ("minus 3 degrees", -3, 0.0), ("the function getUserId", "user id", 0.0), ("plant 一つ", "一つ", 0.0),
    ("然后给小王发消息说我晚点到", "小王,我晚点到", 0.0), ("민수에게 늦는다고 전해줘", "민수, 늦는다고", 0.0),
    ("บอกสมชายว่าผมจะมาสาย", "สมชาย ผมจะมาสาย", 0.0), ("北京", "上海", 1.0),
    *(("anything", value, 0.0) for value in (True, None, "", "?!")),
    ("flights to Oslo", "Paris", 1.0), ("flights to New York", "New Orleans", 0.5), ("five people", 6, 1.0),
    ("version 1.2.3", "1.2.4", 1.0), ("", "Paris", 1.0),
])  # fmt: skip
def test_what_a_text_says_is_found(text: str, value: object, missing: float) -> None:
    """Law: a value that a text has in another spelling is in it; what a text has no word of is missing, in the share of
    the words."""
    assert Said(text).find_missing(value) == missing


@given(st.text(), st.one_of(st.text(), st.floats(), integers, st.booleans()))
@example("", 10**307)
def test_any_text_can_be_asked_for_any_value(text: str, value: object) -> None:
    """Law: a share, whatever is asked; and a text has all of itself."""
    assert 0.0 <= Said(text).find_missing(value) <= 1.0
    assert Said(text).find_missing(text) == 0.0


def test_plain_values_are_found_in_any_depth() -> None:
    """Law: what stands within lists and objects is a value of the call as well."""
    assert set(list_leaves({"a": [1, {"b": "x"}], "c": None, "d": []}, None)) == {1, "x"}
    assert split_words("getUser_id2, 1,000.5") == ["get", "user", "id", "2", "1,000.5"]


def test_of_a_huge_value_a_part_is_read() -> None:
    """Law: neither the size of a value nor its depth makes more of it than `LEAVES_MAX` plain values."""
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    assert list(list_leaves(deep, {})) == [1]
    assert len(list(list_leaves(list(range(100_000)), None))) == LEAVES_MAX
    assert Said("17 words").find_missing("word 17 " * 100_000) == 0.0
