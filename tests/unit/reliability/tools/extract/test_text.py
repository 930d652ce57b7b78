"""JSON with text around it: what is taken off, and what may be data."""

import pytest

from reliability.tools.extract.text import read_arguments, type_text
from reliability.tools.schema.references import Places

HARMLESS = [
    'Here is the JSON: {"a": 1}', 'Sure, here you go:\n{"a": 1}', '{"a": 1} I hope this helps!', '{"a": 1}}',
    '```json\n{"a": 1}\n```', '````{"a": 1}```', '{"a": 1}```',
    'See **this**: so, it is\n```json\n{"a": 1}\n```\nGood?', ' - {"a": 1}', '{"a": 1};', "{'a': 1} ok",
]  # fmt: skip


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_taken_off(text):
    """Fences, prose and brackets too many go; the value stays, and the change is on record."""
    value = read_arguments(text)
    assert not isinstance(value, str)
    assert value.value == {"a": 1}
    assert value.repair_kinds


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}, "b": 2}', '{"a": 1} {"b": 2}', '[]{"a": 1}', '{"a": 1} and "b": 2', "city: {'a': 1}",
        '"b": {"a": 1}', '{"a": 1} b=2', '{"a": 1} 42', '```json\n{"a": 1}\n```\n```json\n{"b": 1}\n```',
        '{"a": 1}, []', "x = {'a': 1}", "no value at all", '{"a": 1}: 2', '{"a": 1} ' + "x" * 5_000,
        "a: b: {'a': 1}", "{1, 2}", '{"a": ',
    ],
)  # fmt: skip
def test_text_that_may_be_data_is_not_taken_off(text):
    """Where something would be lost, nothing is read."""
    assert isinstance(read_arguments(text), str)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"properties": {"a": {}}}, '{"a": 1}', {"a": 1}), ({"properties": {"a": {}}}, "see {a}", "see {a}"),
        ({"properties": {"a": {}}}, "{a", "{a"), ({"items": {"type": "integer"}}, " [1]", [1]),
        ({"items": {}}, '{"a": 1}', '{"a": 1}'), ({"type": "string", "items": {}}, "[1]", "[1]"),
        ({"enum": ["a", None]}, "null", None), ({"enum": ["a", "null", None]}, "null", "null"),
        ({"enum": ["a", None]}, "a", "a"), ({"type": ["string", "null"]}, "null", "null"),
        ({"not": {"type": "string"}}, "5", 5), ({"pattern": "^5"}, "5", "5"),
    ],
)  # fmt: skip
def test_a_text_stands_for_what_its_schema_means(schema, text, value):
    """Law: a text is read as a value where no text is allowed, where a choice has null, and where the schema tells of
    an object or a list and the text is one; anything else stays the text that it is."""
    assert type_text(text, schema, Places({}))[0] == value
