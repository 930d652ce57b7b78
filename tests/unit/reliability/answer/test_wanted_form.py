"""The text of an answer against the `response_format` of its request."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.answer.wanted_form import WantedForm, asks_for_json, form_message, read_wanted_form
from reliability.steps import OutOfSteps, Steps
from reliability.tools import BadSchema

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "kind": {"enum": ["cat", "dog"]}},
    "required": ["name"],
    "additionalProperties": False,
}


def wants(schema: Any = None, **more: Any) -> WantedForm:
    schema = {"name": "a", "schema": schema or SCHEMA, **more}
    return read_wanted_form({"type": "json_schema", "json_schema": schema}, Steps(10_000))


@given(st.fixed_dictionaries({"name": st.text()}, optional={"age": st.integers()}), st.sampled_from([None, 2]))
def test_a_valid_text_stays_to_the_letter(value, indent):
    """Law: what is right is not touched."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    delivered, judged = wants().judge(text)
    assert (delivered, judged.repairs, judged.violations) == (text, (), ())


@pytest.mark.parametrize(
    ("said", "kinds"),
    [
        ('```json\n{"name": "Ada"}\n```', ["fence"]),
        ('Here is the answer:\n```json\n{"name": "Ada"}\n```\nIt has one member.', ["fence", "extra_text"]),
        ('{"name": "Ada"}\n\nI hope that this helps!', ["extra_text"]),
        ("{'name': 'Ada'}", ["literal"]),
        ('{"name": "Ada", "age": null}', ["null_dropped"]),
    ],
)
def test_what_loses_nothing_is_repaired_and_recorded(said, kinds):
    """Law: fences and prose around one document go; the document stays."""
    delivered, judged = wants().judge(said)
    assert judged.violations == ()
    assert json.loads(delivered) == {"name": "Ada"}
    assert [repair.kind for repair in judged.repairs] == kinds


@pytest.mark.parametrize(("said", "path"), [
    ("The name is Ada.", ""), ('{"title": "Ada"}', "/title"), ('{"name": 7}', "/name"),
    ('{"name": "Ada"} {"name": "Bob"}', ""), ('{"name": "A', ""), ("[]", ""), ("", ""),
])  # fmt: skip
def test_what_is_not_of_the_form_is_refused_with_its_place(said, path):
    """Law: nothing is guessed: two documents, a cut one and wrong members are refused."""
    _, judged = wants().judge(said)
    assert path in [violation.path for violation in judged.violations]


def test_only_what_the_client_insists_on_is_strict():
    """Law: a schema without `strict` and any JSON object are wishes."""
    assert not read_wanted_form({"type": "json_object"}, Steps(1_000)).strict
    assert not wants().strict
    assert wants(strict=True).strict
    assert read_wanted_form({"type": "text"}, Steps(0)) is None
    assert read_wanted_form(None, Steps(0)) is None


def test_judging_is_counted():
    """Law: what a client sends costs counted steps."""
    deep = {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}
    with pytest.raises(OutOfSteps):
        wants(deep).judge(json.dumps([[]] * 2_000), Steps(100))
    assert wants(deep).judge(json.dumps([[]] * 2_000), Steps(100, final=True))[1].violations


def test_a_broken_schema_is_the_clients_mistake():
    """Law: it is found before anything runs."""
    found = read_wanted_form({"type": "json_schema", "json_schema": {"schema": {"type": "strin"}}}, Steps(1_000))
    assert isinstance(found, BadSchema)


def test_the_model_is_told_what_is_wrong_and_shown_the_schema():
    """Law: one message for all violations, bounded."""
    violations = wants().judge('{"title": 1}')[1].violations
    words = form_message(violations, {"type": "json_schema", "json_schema": {"schema": SCHEMA}})

    assert "/name is required" in words
    assert "/title is no member that the schema allows" in words
    assert json.dumps(SCHEMA) in words
    long = {"type": "json_schema", "json_schema": {"schema": {"a": "x" * 9_999}}}
    assert len(form_message(violations * 500, long)) < 3_000


@pytest.mark.parametrize("written", ["a \\ud83d b", "a \ud83d b", "a \\udc00 b"])
def test_half_a_character_is_replaced_and_noted(written):
    """Law: no client's parser takes half a character, escaped or not; a whole one in two escapes stays as written."""
    delivered, judged = wants().judge(f'{{"name": "{written}"}}')
    assert judged.violations == ()
    assert json.loads(delivered) == {"name": "a \ufffd b"}
    assert [repair.kind for repair in judged.repairs] == ["surrogate"]
    whole = '{"name": "\\ud83d\\ude00"}'
    assert wants().judge(whole)[0] == whole


def test_two_keys_that_half_characters_alone_tell_apart_are_refused():
    """Law: one of their values would be lost."""
    form = read_wanted_form({"type": "json_object"}, Steps(10_000))
    assert form.judge('{"\\ud83d": 1, "\\ud83e": 2}')[1].violations


ASKS = [
    "List the functions of utils.py as JSON with name and parameters.", "Answer in JSON.", "Give me JSON: name, input",
    "Answer with the next move as JSON {action, params}.", "Name the RPC and its params as JSON", "Return only JSON.",
    "Describe it, and output a JSON list of steps.", "Gib die Funktionen als JSON",
    "Return a JSON object with the name.", "JSON please: all test inputs", "Print it as valid JSON, nothing else",
    "Respond in pure JSON format.",
]  # fmt: skip
DOES_NOT = [
    "Read config.json and tell me its port.", "Parse the JSON in data.txt.", "Fix the JSON parser.",
    "Why is it no JSON?", "Make the endpoint return JSON like the others do",
    "Write the JSON file for the theme.", "Open package.json",
    "Write JSON tests for the api.", "Is package.json valid?", "What does `json.loads` return?", "",
]  # fmt: skip


@pytest.mark.parametrize(("request_text", "asks"), [
    *((text, True) for text in (*ASKS, *map(str.lower, ASKS), *(f"Hello!\n{text}\n" for text in ASKS[:3]))),
    *((text, False) for text in (*DOES_NOT, "x " * 5_000 + "as JSON.")),
])  # fmt: skip
def test_who_asks_for_json_wants_it(request_text, asks):
    """Law: an order to answer in JSON is one in whatever words; a file, a parser or an endpoint that has to do with
    JSON is none."""
    assert asks_for_json(request_text) is asks


@pytest.mark.parametrize(("space", "asks"), [("\n" * 30, True), (" " * 40, False)])
def test_an_order_stands_near_the_end_of_the_sentence_before(space, asks):
    """Law: white space before an order is looked at a bounded stretch, so that a row of line ends costs linear time."""
    assert asks_for_json(f"Hello:{space}return JSON.") is asks
