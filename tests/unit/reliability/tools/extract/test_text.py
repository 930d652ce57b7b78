"""JSON with text around it: what is taken off, and what may be data."""

import pytest

from reliability.tools.extract.literal import Unreadable
from reliability.tools.extract.text import Arguments, read_arguments, read_framed, type_text
from reliability.tools.schema.references import Places
from tests.support.extracting import BOX

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
    ("text", "stripped"),
    [
        ("\na\n", "a"), ("\r\na\r\n", "a"), ("a\n", "a\n"), ("def f():\n    pass\n", "def f():\n    pass\n"),
        ("\na", "a"), ("\n", ""), ("\n\na", "\na"), ("\na\n    ", "a"), ("\n  a\n    ", "  a"), ("\n    ", ""),
        ("a\n    ", "a\n    "), ("<![CDATA[a\n]]>", "a\n"),
    ],
)  # fmt: skip
def test_only_a_framed_text_loses_its_line_breaks(text, stripped):
    """A line break behind the opening tag is layout, and then the closing tag's own line is; a value that begins on the
    line of its opening tag keeps its line breaks."""
    assert read_framed(text, 0, len(text), on_lines=True)[0] == stripped


def test_what_the_model_says_of_a_value_counts():
    """A value that is said to be no string is a literal, also where a string is allowed."""
    found = Arguments(BOX.find("search"))
    found.add("query", "5", 0, is_string=True)
    found.add("more", "[1]", 0, is_string=False)
    assert found.found == {"query": "5", "more": [1]}
    with pytest.raises(Unreadable):
        found.add("query", "6", 0)


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
