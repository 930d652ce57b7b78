"""One JSON document with text around it: which text is prose, and what may be a part of the document."""

import pytest

from reliability.tools.extract.text import read_document
from tests.unit.reliability.tools.extract.test_text import HARMLESS

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


@pytest.mark.parametrize("text", [*HARMLESS, '\\boxed{{"a": 1}}', 'The answer is $\\boxed{ {"a": 1} }$.'])
def test_what_is_taken_off_from_around_arguments_is_taken_off_here(text):
    """Law: the rules for arguments are the stricter ones; a box of LaTeX is one more frame."""
    value = read_document(text, {})
    assert not isinstance(value, str)
    assert value.value == {"a": 1}


@pytest.mark.parametrize(
    "text",
    [
        "X X", "X\nX", "```json\nX\n```\n```json\nX\n```", "[]X", "X, []", "[X, X", "[1, X", '{"p": X',
        "{p: X, q: 1", "{'a': 1, 'p': X", "{{X}}"[1:-1], '{"name": "Bob", "age": }\nX', 'X\n{"name": "Bo',
        'X, "b": 2}', 'X and "b": 2', "X, 'b': None", "X: 2", "X 42", "X\n42", 'X\n"b"', '"a": 1\nX', '"p": X',
        '"a", "p":\n X', "name: X", "**age** = X", "city: Lima\nitem: X", "item: X\nother: 3", "x = X\ny = 2",
        "```yaml\ncity: Lima\nitem: X\n```", "no value at all", "{1, 2}", "",
    ],
)  # fmt: skip
def test_a_part_of_a_document_is_never_left_out(text):
    """Law: where another value, a part of one, or a key of this one stands around the document, nothing is read."""
    assert isinstance(read_document(text.replace("X", DOCUMENT), SCHEMA), str)


@pytest.mark.parametrize("value", ['"Anna"', "42", "[1, 2]", "true", "null", " {} "])
def test_any_value_that_is_the_whole_text_is_read(value):
    """Law: a document may be any JSON value."""
    assert not isinstance(read_document(value, {}), str)
