"""Which types a schema allows at its own place."""

from __future__ import annotations

import pytest

from reliability.tools.schema.types_allowed import find_allowed_types, property_schema


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        ({}, None),
        (True, None),
        ({"type": "integer"}, {"integer"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"enum": ["a", 1]}, {"string", "integer"}),
        ({"const": None}, {"null"}),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, {"string", "array"}),
        ({"anyOf": [{}, {"type": "array"}]}, None),
        ({"allOf": [{"type": "number"}, {"type": ["integer", "string"]}]}, {"integer"}),
        ({"$ref": "#/$defs/A", "type": ["boolean", "object"]}, {"boolean"}),
        ({"$ref": "#/$defs/Loop"}, None),
    ],
)
def test_the_types_that_a_schema_allows(schema, kinds):
    """No type is left out; what can't be told is anything."""
    root = {"$defs": {"A": {"type": "boolean"}, "Loop": {"$ref": "#/$defs/Loop"}}}

    assert find_allowed_types(schema, root) == kinds


def test_a_property_is_found_wherever_its_schema_stands():
    """Through references and alternatives, and in `additionalProperties`; nowhere is None."""
    root = {"$defs": {"A": {"properties": {"b": {"type": "null"}}}}}
    either = {"$ref": "#/$defs/A", "anyOf": [{"properties": {"b": {"type": "string"}}}]}

    assert find_allowed_types(property_schema(either, root, "b"), root) == {"null", "string"}
    assert property_schema({"$ref": "#/$defs/A"}, root, "b") == {"type": "null"}
    assert property_schema({"additionalProperties": {"type": "array"}}, root, "b") == {"type": "array"}
    assert property_schema({"additionalProperties": False}, root, "b") is None
    assert property_schema(True, root, "b") is None
