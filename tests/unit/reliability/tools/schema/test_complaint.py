"""Which values are equal as JSON."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from reliability.tools.schema.complaint import write_canonical
from reliability.tools.schema.validator import Validator

texts = st.sampled_from(["", "a", "aa", 'a"a', 'a"1:a', "a]", "1,", "null", '"'])
values = st.recursive(
    st.one_of(st.sampled_from([None, True, False, 0, 1, 0.0, 1.0, 1.5, -0.0]), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


def same(a: Any, b: Any) -> bool:
    """What JSON Schema calls equal, by its words."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


def respelled(value: Any) -> Any:
    """The same value: members the other way round, whole numbers as floats."""
    if isinstance(value, dict):
        return {key: respelled(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [respelled(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@given(values, values)
@example(["a", "a"], ['a"a'])
@example([True], [1])
@example([None], ["null"])
def test_one_text_for_all_that_is_equal_and_for_nothing_else(a, b):
    """Two values have one text exactly where they are equal as JSON, however each of them is spelled."""
    assert (write_canonical(a) == write_canonical(b)) is same(a, b)
    assert write_canonical(respelled(a)) == write_canonical(a)


def test_a_number_of_any_length_is_compared():
    """Python writes none of so many digits in decimals."""
    assert Validator({"const": 10**5000}).is_valid(10**5000)
