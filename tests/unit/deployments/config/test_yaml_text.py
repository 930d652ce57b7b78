"""YAML that a person wrote: nothing in it is lost without a word."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deployments.config.config_errors import describe_yaml_error
from deployments.config.yaml_text import load_yaml

texts = st.text("ab1:#-{}[]<&*'\"~? \té", max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_what_has_no_key_twice_is_read_as_ever(value: Any) -> None:
    """Law: any document whose keys are unique is what the safe loader makes of it."""
    text = yaml.safe_dump(value, allow_unicode=True)
    assert load_yaml(text) == yaml.safe_load(text) == value


@pytest.mark.parametrize(("text", "line", "column"), [
    ("a: 1\nb: 2\na: 3\n", 3, 1), ("a: {b: 1, 'b': 2}\n", 1, 11), ("- x: 1\n  y: {z: 1}\n  x: 2\n", 3, 3),
    ("1: a\n'1': b\n", 2, 1),
])  # fmt: skip
def test_a_key_that_stands_twice_is_named_by_its_place(text: str, line: int, column: int) -> None:
    """Law: at any depth and in any spelling it is an error that says where, and nothing of what stands there."""
    with pytest.raises(yaml.YAMLError) as error:
        load_yaml(text)
    assert describe_yaml_error(error.value) == f"line {line}, column {column}: this key stands here twice"


@pytest.mark.parametrize("tag", ["bool", "timestamp"])
def test_a_value_that_is_not_what_its_tag_says_is_named_by_its_place(tag: str) -> None:
    """Law: it is an error of YAML that says where, and nothing of the value, which may be a key."""
    with pytest.raises(yaml.YAMLError) as error:
        load_yaml(f"- secret: !!{tag} value-of-a-key\n")
    assert describe_yaml_error(error.value) == "line 1, column 11: not what its tag says"


def test_a_mapping_may_be_merged_and_changed() -> None:
    """Law: `<<` takes in other mappings, also several, and a key beside it goes before theirs."""
    text = "a: &a {x: 1, y: 2}\nb: &b {z: 3}\nc: {<<: *a, x: 4}\nd: {<<: [*a, *b], y: 5}\n"
    assert load_yaml(text) == yaml.safe_load(text)
