"""Repairs of arguments: what has one meaning is mended, and nothing else is touched."""

import json

import pytest

from reliability.tools import Repair, RepairKind
from tests.support.call_values import made
from tests.support.checking import verdict, with_city
from tests.support.renderings import tool


@pytest.mark.parametrize(("field", "damaged", "mended", "kind"), [
    ("unit", "celsius", "Celsius", RepairKind.ENUM_CASE), ("code", "ALPHA", "Alpha", RepairKind.ENUM_CASE),
    ("pick", "red", "Red", RepairKind.ENUM_CASE), ("live", "true", True, RepairKind.BOOLEAN),
    ("live", "False", False, RepairKind.BOOLEAN), ("flag", "true", True, RepairKind.BOOLEAN),
    ("where", '{"tags": ["a"]}', {"tags": ["a"]}, RepairKind.DOUBLE_ENCODING),
    ("where", {"tags": '["a"]'}, {"tags": ["a"]}, RepairKind.DOUBLE_ENCODING),
    ("where", json.dumps({"tags": json.dumps(["a"])}), {"tags": ["a"]}, RepairKind.DOUBLE_ENCODING),
    ("where", "{'tags': ['a']}", {"tags": ["a"]}, RepairKind.DOUBLE_ENCODING),
    ("either", '{"a": 1}', {"a": 1}, RepairKind.DOUBLE_ENCODING),
    ("either", "true", True, RepairKind.BOOLEAN),
])  # fmt: skip
def test_lossless_repairs(field, damaged, mended, kind):
    """What has one meaning by the schema is mended, at every depth, and on record with its place."""
    found = with_city(**{field: damaged})
    assert found.violations == ()
    assert json.loads(found.calls[0].arguments) == {"city": "Lima", field: mended}
    assert kind in {repair.kind for repair in found.repairs}
    assert all(repair.path.startswith(f"/0/arguments/{field}") for repair in found.repairs)


@pytest.mark.parametrize(("written", "words", "meant"), [
    *((text, ["in_progress", "done"], "in_progress") for text in ("in-progress", "In Progress", "inProgress")),
    ("in-progress", ["in_progress", "inProgress"], None), ("1-0", ["10"], None), ("a-1", ["a1"], None),
    ("-low", ["low"], None), ("re-sign", ["resign"], "resign"),
])  # fmt: skip
def test_a_word_is_known_by_its_letters(written, words, meant):
    """Law: spellings that differ in case and in what stands between two letters are one word, where one word alone is
    so spelled. Figures and signs are no spelling."""
    schema = {"type": "object", "properties": {"state": {"enum": words}}}
    found = verdict({"state": written}, name="f", box=made([tool("f", schema)]))

    got = [json.loads(call.arguments)["state"] for call in found.calls if not found.violations]
    assert got == ([] if meant is None else [meant])


SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "max_results": {"type": "number", "default": 5},
        "deep": {"type": "boolean", "default": False},
    },
    "required": ["query", "max_results", "deep"],
}


@pytest.mark.parametrize(("given", "filled"), [
    ({"query": "x"}, {"max_results": 5, "deep": False}), ({"query": "x", "deep": True}, {"max_results": 5}),
    ({"query": "x", "deep": "true"}, {"max_results": 5, "deep": True}),
    ({"max_results": 3}, None), ({}, None),
])  # fmt: skip
def test_a_required_argument_has_its_default(given, filled):
    """Law: what the schema has a default for is filled in where a model leaves it out; what it has none for is asked
    for, and then nothing is filled in."""
    found = verdict(given, name="f", box=made([tool("f", SEARCH)]))

    assert [json.loads(call.arguments) for call in found.calls] == ([] if filled is None else [given | filled])
    assert (RepairKind.DEFAULT in {repair.kind for repair in found.repairs}) is (filled is not None)


NULLABLE = [
    {"anyOf": [{"type": "string", "enum": ["summary", "full"]}, {"type": "null"}]},
    {"oneOf": [{"const": "full"}, {"type": "null"}]},
    {"type": "string", "enum": ["full"], "nullable": True},
    {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    {"type": ["integer", "null"]},
    {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
]


@pytest.mark.parametrize("text", ["null", "None", " NULL "])
@pytest.mark.parametrize("schema", NULLABLE)
def test_the_word_null_is_null_where_nothing_else_is_allowed(schema, text):
    """Law: null that was written as a text (in tags a model can't write another) is null where the schema takes that,
    and not the text; where the text is allowed, it stays."""
    properties = {"detail": schema, "free": {"type": ["string", "null"]}}
    found = verdict({"detail": text, "free": text}, "f", made([tool("f", {"properties": properties})]))

    assert [json.loads(call.arguments) for call in found.calls] == [{"detail": None, "free": text}]
    assert found.repairs == (Repair(RepairKind.NULL, "/0/arguments/detail"),)


@pytest.mark.parametrize("field", ["days", "live", "where", "unit"])
def test_null_on_an_optional_field_is_left_out(field):
    """null on an optional field that takes none is dropped, on record."""
    found = with_city(**{field: None})
    assert json.loads(found.calls[0].arguments) == {"city": "Lima"}
    assert found.repairs == (Repair(RepairKind.NULL_DROPPED, f"/0/arguments/{field}"),)


@pytest.mark.parametrize(("field", "value"), [
    ("days", "5"), ("days", 5.5), ("days", [5]), ("days", "five"), ("days", True), ("days", 0), ("live", "yes"),
    ("live", 1), ("where", "Lima"), ("where", '{"tags": ["a"]} more'), ("where", ["a"]), ("where", {"tags": "a"}),
    ("where", {"tags": [None]}), ("unit", "Kelvin"), ("unit", "celsius "), ("twice", "One"), ("loose", '{"a": 1}'),
    ("either", "yes"), ("either", '{"b": 1}'), ("day", "2031-02-30"), ("code", 3), ("pick", "green"), ("city", 7),
    ("city", None), ("city", ["Lima"]), ("flag", "maybe"),
])  # fmt: skip
def test_what_would_be_a_guess_is_refused_with_its_place(field, value):
    """No number is changed, no scalar becomes an array, no string that the schema allows is decoded."""
    found = with_city(**{field: value})
    assert found.calls == ()
    assert found.violations
    assert all(violation.path.startswith(f"/0/arguments/{field}") for violation in found.violations)
    assert all(len(violation.message) <= 200 for violation in found.violations)


def test_null_on_a_required_field_stays_to_be_refused():
    """A required field is not dropped: nothing is repaired, and null is named as what is wrong."""
    found = verdict({"city": None})
    assert found.repairs == ()
    assert found.violations[0].message == "must be string, not null"


def test_allowed_values_are_not_touched():
    """A string stays a string where one is allowed, null stays where null is, and a word in its own case
    stays."""
    for fields in (
        {"none": None}, {"none": '{"a": 1}'}, {"loose": "x{}"}, {"unit": "Celsius"}, {"none": "true"},
        {"twice": "ONE"},
    ):  # fmt: skip
        found = with_city(**fields)
        assert found.repairs == ()
        assert json.loads(found.calls[0].arguments) == {"city": "Lima", **fields}


def test_repairs_that_undo_one_another_are_made_one_by_one():
    """What two repairs together leave wrong, and one of them doesn't, is repaired by the one: nothing is changed that
    was right."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "if": {"properties": {"a": {"type": "string"}}},
        "then": {"properties": {"b": {"type": "boolean"}}},
        "else": {"properties": {"b": {"type": "string"}}},
    }
    checked = verdict({"a": "true", "b": "true"}, name="f", box=made([tool("f", schema)]))

    assert json.loads(checked.calls[0].arguments) == {"a": True, "b": "true"}
    assert len(checked.repairs) == 1
