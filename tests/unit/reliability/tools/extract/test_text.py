"""JSON with text around it: what is taken off, and what may be data."""

from __future__ import annotations

import pytest

from reliability.tools.extract.text import read_arguments


@pytest.mark.parametrize(
    "text",
    [
        'Here is the JSON: {"a": 1}',
        'Sure, here you go:\n{"a": 1}',
        '{"a": 1} I hope this helps!',
        '{"a": 1}}',
        '```json\n{"a": 1}\n```',
        '````{"a": 1}```',
        '{"a": 1}```',
        'See **this**: so, it is\n```json\n{"a": 1}\n```\nGood?',
        ' - {"a": 1}',
        '{"a": 1};',
        "{'a': 1} ok",
    ],
)
def test_harmless_text_is_taken_off(text):
    """Fences, prose and brackets too many go; the value stays, and the change is on record."""
    value = read_arguments(text)

    assert not isinstance(value, str)
    assert value.value == {"a": 1}
    assert value.repair_kinds


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}, "b": 2}',
        '{"a": 1} {"b": 2}',
        '[]{"a": 1}',
        '{"a": 1} and "b": 2',
        "city: {'a': 1}",
        '"b": {"a": 1}',
        '{"a": 1} b=2',
        '{"a": 1} 42',
        '```json\n{"a": 1}\n```\n```json\n{"b": 1}\n```',
        '{"a": 1}, []',
        "x = {'a': 1}",
        "no value at all",
        '{"a": 1}: 2',
        '{"a": 1} ' + "x" * 5_000,
        "a: b: {'a': 1}",
        "{1, 2}",
        '{"a": ',
    ],
)
def test_text_that_may_be_data_is_not_taken_off(text):
    """Where something would be lost, nothing is read."""
    assert isinstance(read_arguments(text), str)
