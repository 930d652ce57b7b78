"""Where the references of a schema lead."""

import pytest

from reliability.tools import BadTools, build_toolbox
from reliability.tools.schema.references import Places
from tests.support.renderings import tool


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"$ref": "https://remote/schema.json"}, "only references inside the schema"),
        ({"$ref": "#/$defs/B"}, "'#/$defs/B' leads nowhere"),
        ({"properties": {"a": {"$ref": "3/b"}}}, "only references inside the schema"),
        ({"$ref": "#/$defs/B", "$defs": {"B": {"anyOf": [{"$ref": "#/$defs/B"}]}}}, "leads back to itself"),
    ],
)
def test_bad_references_are_told_apart(parameters, said):
    """The client is told what is wrong with a reference: where it leads, found out without following it."""
    bad = build_toolbox([tool("a", parameters)])
    assert isinstance(bad, BadTools)
    assert said in bad.message


@pytest.mark.parametrize(("schema", "kinds"), [
    ({}, None), (True, None), ({"type": "integer"}, {"integer"}), ({"type": ["string", "null"]}, {"string", "null"}),
    ({"enum": ["a", 1]}, {"string", "integer"}), ({"const": None}, {"null"}),
    ({"not": {"type": "string"}}, {"number", "integer", "boolean", "object", "array", "null"}),
    ({"not": {"type": ["string", "null"]}, "type": ["string", "integer"]}, {"integer"}),
    ({"not": {"type": ["number", "string"]}}, {"boolean", "object", "array", "null"}),
    ({"not": {"type": "string", "minLength": 5}}, None),
    ({"anyOf": [{"type": "string"}, {"type": "array"}]}, {"string", "array"}),
    ({"anyOf": [{}, {"type": "array"}]}, None),
    ({"allOf": [{"type": "number"}, {"type": ["integer", "string"]}]}, {"integer"}),
    ({"$ref": "#/$defs/A", "type": ["boolean", "object"]}, {"boolean"}),
    ({"$ref": "#/$defs/Loop"}, None),
])  # fmt: skip
def test_the_types_that_a_schema_allows(schema, kinds):
    """No type is left out; what can't be told is anything."""
    root = {"$defs": {"A": {"type": "boolean"}, "Loop": {"$ref": "#/$defs/Loop"}}}
    assert Places(root).find_types(schema) == kinds


def test_a_property_is_found_wherever_its_schema_stands():
    """Through references and alternatives, and in `additionalProperties`; nowhere is None."""
    root = {"$defs": {"A": {"properties": {"b": {"type": "null"}}}}}
    either = {"$ref": "#/$defs/A", "anyOf": [{"properties": {"b": {"type": "string"}}}]}
    places = Places(root)
    assert places.find_types(places.find_member(either, "b")) == {"null", "string"}
    assert places.find_member({"$ref": "#/$defs/A"}, "b") == {"type": "null"}
    assert places.find_member({"additionalProperties": {"type": "array"}}, "b") == {"type": "array"}
    assert places.find_member({"additionalProperties": False}, "b") is None
    assert places.find_member(True, "b") is None
