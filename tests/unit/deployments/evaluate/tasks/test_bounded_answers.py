"""Values that leave the sandbox: plain ones come through with their types, and nothing forged is right."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.evaluate.tasks.bounded_tests import (
    Other,
    decode_answers,
    is_at_least,
    is_same,
)
from deployments.evaluate.tasks.confined_tests import encode

KEYS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
PLAIN = st.recursive(
    KEYS | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_a_plain_value_comes_through(value: object) -> None:
    """Law: what is encoded and decoded is the same, with the same types."""
    (found,) = decode_answers(json.dumps([encode(value)]).encode())
    assert is_same(found, value)


@given(PLAIN, PLAIN)
def test_same_values_have_the_same_types_and_words(one: object, other: object) -> None:
    """Law: two values are the same only where Python writes them alike, but for the order of a dictionary and the sign
    of zero."""
    if is_same(one, other):
        assert sorted(repr(one).replace("-0.0", "0.0")) == sorted(repr(other).replace("-0.0", "0.0"))
    assert is_same(one, one)


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_bytes_that_are_no_answers_are_refused(text: bytes) -> None:
    """Law: whatever bytes come, they are answers or a `ValueError`."""
    with contextlib.suppress(ValueError):
        assert type(decode_answers(text)) is list


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "{}", "[{}]", '[{"list": 1}]', '[{"set": []}]', '[{"dict": 1}]', '[{"dict": [[1]]}]', "[[1]]"),
        *("[" * 100_000, '[{"dict": [[{"list": []}, 1]]}]', "[" + "1" * 5000 + "]", '[{"list": [], "dict": []}]'),
        '[{"other": 1}]',
    ],
)
def test_forged_answers_are_refused(text: str) -> None:
    """Law: a form that the sandbox doesn't use is no answer."""
    with pytest.raises(ValueError):  # noqa: PT011 - the words are Python's
        decode_answers(text.encode())


def test_what_isnt_plain_is_never_right() -> None:
    """Law: an object, an exception and a value that is too deep are the same as no plain value."""
    deep: list[object] = []
    for _ in range(50):
        deep = [deep]
    for value in (object(), {1}, b"", type("Any", (int,), {})(1)):
        (found,) = decode_answers(json.dumps([encode(value)]).encode())
        assert isinstance(found, Other)
        assert not is_same(found, value)
        assert not is_at_least(found, 0)
    assert not is_same(decode_answers(json.dumps([encode(deep)]).encode())[0], deep)


@pytest.mark.parametrize(
    ("found", "fits"), [(3, True), (4, True), (2, False), (True, False), (9.0, False), ("9", False)]
)
def test_at_least(found: object, fits: bool) -> None:
    """Law: only a whole number is at least another one."""
    assert is_at_least(found, 3) is fits
