"""Values that leave the sandbox: those of JSON come through with their types, and nothing forged is right."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.evaluate.tasks.bounded_tests import Check, _judge
from deployments.evaluate.tasks.confined_tests import _encode

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def is_right(said: bytes, answer: object) -> bool:
    return _judge([Check("", "", answer)], said) == ""


@given(PLAIN, PLAIN)
def test_a_value_is_right_where_it_is_the_answer_with_its_types(value: object, other: object) -> None:
    """Law: what is encoded is the same; another value is right only where Python writes the two alike, but for the
    order of a mapping."""
    said = json.dumps([_encode(value)]).encode()
    assert is_right(said, value)
    assert not is_right(said, other) or sorted(repr(value)) == sorted(repr(other))


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode), PLAIN)
def test_bytes_that_are_no_answers_are_wrong(text: bytes, answer: object) -> None:
    """Law: whatever bytes come, they are answers or wrong, and nothing raises."""
    assert _judge([Check("", "", answer)] * 2, text)


@pytest.mark.parametrize("text", ["", "1", "{}", '{"a": 1}', "[" * 100_000, "[" + "1" * 5000 + "]", "[1, 1]"])
def test_forged_answers_are_wrong(text: str) -> None:
    """Law: a form that the sandbox doesn't use is no answer, and no questions are no pass."""
    assert not is_right(text.encode(), 1)
    assert _judge([], text.encode())


def test_what_isnt_plain_is_never_right() -> None:
    """Law: an object, a tuple, a key that is no text, and a value that is too deep are the same as no plain value."""
    deep: list[object] = []
    for _ in range(50):
        deep = [deep]
    values = (object(), {1}, b"", type("Any", (int,), {})(1), (1,), {1: 2}, deep)
    encoded = [_encode(value) for value in values]
    assert [list(one) for one in encoded[:-1] if isinstance(one, dict)] == [["other"]] * 6
    assert not is_right(json.dumps([encoded[-1]]).encode(), deep)
