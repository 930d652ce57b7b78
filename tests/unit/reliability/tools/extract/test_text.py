"""JSON with text around it: what is taken off, and what may be data."""

import pytest

from reliability.tools.extract.text import Arguments, read_arguments, read_document, type_text
from reliability.tools.schema.references import Places
from tests.support.call_values import made
from tests.support.renderings import tool

HARMLESS = [
    'Here is the JSON: {"a": 1}', 'Sure, here you go:\n{"a": 1}', '{"a": 1} I hope this helps!', '{"a": 1}}',
    '```json\n{"a": 1}\n```', '````{"a": 1}```', '{"a": 1}```',
    'See **this**: so, it is\n```json\n{"a": 1}\n```\nGood?', ' - {"a": 1}', '{"a": 1};', "{'a': 1} ok",
]  # fmt: skip


BOXED = ['\\boxed{{"a": 1}}', 'The answer is $\\boxed{ {"a": 1} }$.']


@pytest.mark.parametrize("text", [*HARMLESS, *BOXED])
def test_harmless_text_is_taken_off(text):
    """Law: fences, prose and brackets too many go; the value stays, and the change is on record. Around the document of
    a form a box of LaTeX is one more frame; the rules for arguments are the stricter ones."""
    for value in (read_document(text, {}), *([read_arguments(text)] if text in HARMLESS else [])):
        assert not isinstance(value, str)
        assert value.value == {"a": 1}
        assert value.repair_kinds


@pytest.mark.parametrize("text", [
    '{"a": 1}, "b": 2}', '{"a": 1} {"b": 2}', '[]{"a": 1}', '{"a": 1} and "b": 2', "city: {'a': 1}", '"b": {"a": 1}',
    '{"a": 1} b=2', '{"a": 1} 42', '```json\n{"a": 1}\n```\n```json\n{"b": 1}\n```', '{"a": 1}, []', "x = {'a': 1}",
    "no value at all", '{"a": 1}: 2', '{"a": 1} ' + "x" * 5_000, "a: b: {'a': 1}", "{1, 2}", '{"a": ',
])  # fmt: skip
def test_text_that_may_be_data_is_not_taken_off(text):
    """Where something would be lost, nothing is read."""
    assert isinstance(read_arguments(text), str)


@pytest.mark.parametrize(("schema", "text", "value"), [
    ({"properties": {"a": {}}}, '{"a": 1}', {"a": 1}), ({"properties": {"a": {}}}, "see {a}", "see {a}"),
    ({"properties": {"a": {}}}, "{a", "{a"), ({"items": {"type": "integer"}}, " [1]", [1]),
    ({"items": {}}, '{"a": 1}', '{"a": 1}'), ({"type": "string", "items": {}}, "[1]", "[1]"),
    ({"enum": ["a", None]}, "null", None), ({"enum": ["a", "null", None]}, "null", "null"),
    ({"enum": ["a", None]}, "a", "a"), ({"type": ["string", "null"]}, "null", None),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
    ({"type": ["string", "null"]}, "Null", "Null"), ({"type": ["string", "null"]}, "None", "None"),
    ({"type": "string"}, "null", "null"), ({}, "null", "null"), ({"not": {"type": "string"}}, "5", 5),
    ({"pattern": "^5"}, "5", "5"),
])  # fmt: skip
def test_a_text_stands_for_what_its_schema_means(schema, text, value):
    """Law: a text is read as a value where no text is allowed, where it is null and the schema names that, and where
    the schema tells of an object or a list and the text is one; anything else stays the text that it is."""
    assert type_text(text, schema, Places({}))[0] == value


@pytest.mark.parametrize(("is_string", "value"), [(True, "null"), (None, None), (False, None)])
def test_a_text_that_is_called_a_string_stays_one(is_string, value):
    """Law: where the form calls a parameter a string, `null` is that word; else it is null where that is allowed."""
    (declared,) = made([tool("f", {"type": "object", "properties": {"key": {"type": ["string", "null"]}}})]).tools
    found = Arguments(declared)
    found.add("key", "null", 0, is_string)

    assert found.found == {"key": value}


# A document: which text around it is prose, and what may be a part of it.
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
VALUE = {"name": "Anna", "age": 3}
DOCUMENT = '{"name": "Anna", "age": 3}'
BEFORE = [
    'Here is the JSON for "Anna":\n\n', "Here is the `p` object (age=3):\n\n",
    "Here is the output [JSON], see [the page](http://a/b):\n", "Step 1: read it.\nStep 2: write it.\n\n",
    'I extracted: name "Anna", age = 3.\n\n', "The JSON {object} is: ", "Sure: ", "**Answer:** ", "Output:\n",
    "data = ", "Anna's age is 3.\n\nJSON: ", "",
]  # fmt: skip
BEHIND = [
    "", '\n\nI set "age" to 3.', "\n\nNote: `age` is a number.",
    '\n\nExplanation:\n- `name`: the name\n- "age": the age\n', "\n\n1. name: the name",
    '\n\n"name" is a string [sic], a = b.',
]  # fmt: skip


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("before", BEFORE)
def test_prose_around_one_document_goes_whatever_it_holds(before, behind):
    """Law: quotes, code, equals signs, labels and brackets that hold no value are prose, around a document as around
    its fence; what is taken off is on record."""
    for document in (DOCUMENT, f"```json\n{DOCUMENT}\n```", f"`{DOCUMENT}`"):
        value = read_document(before + document + behind, SCHEMA)
        assert not isinstance(value, str), (value, before + document + behind)
        assert value.value == VALUE
        assert bool(value.repair_kinds) == (before + document + behind != DOCUMENT)


@pytest.mark.parametrize("text", [
    "X X", "X\nX", "```json\nX\n```\n```json\nX\n```", "[]X", "X, []", "[X, X", "[1, X", '{"p": X', "{p: X, q: 1",
    "{'a': 1, 'p': X", "{{X}}"[1:-1], '{"name": "Bob", "age": }\nX', 'X\n{"name": "Bo', 'X, "b": 2}', 'X and "b": 2',
    "X, 'b': None", "X: 2", "X 42", "X\n42", 'X\n"b"', '"a": 1\nX', '"p": X', '"a", "p":\n X', "name: X", "**age** = X",
    "city: Lima\nitem: X", "item: X\nother: 3", "x = X\ny = 2", "```yaml\ncity: Lima\nitem: X\n```", "no value at all",
    "{1, 2}", "",
])  # fmt: skip
def test_a_part_of_a_document_is_never_left_out(text):
    """Law: where another value, a part of one, or a key of this one stands around the document, nothing is read."""
    assert isinstance(read_document(text.replace("X", DOCUMENT), SCHEMA), str)


@pytest.mark.parametrize("behind", ["\n- age: 3", "\nage: 3", "\n```\nage = 3\n```", "\nThe age 3."])
def test_a_member_behind_a_document_is_never_left_out(behind):
    """Law: a value behind the document for a member that it lacks, and that the schema has, may be meant: nothing is
    read. Where the document has that member, it is prose."""
    assert isinstance(read_document('{"name": "Anna"}' + behind, SCHEMA), str)
    assert not isinstance(read_document(DOCUMENT + behind, SCHEMA), str)


@pytest.mark.parametrize("value", ['"Anna"', "42", "[1, 2]", "true", "null", " {} "])
def test_any_value_that_is_the_whole_text_is_read(value):
    """Law: a document may be any JSON value."""
    assert not isinstance(read_document(value, {}), str)
