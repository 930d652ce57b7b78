"""Which members and items a schema speaks of: as the reference sees it."""

import pytest
from jsonschema import Draft202012Validator

from reliability.tools.schema.validator import Validator

PARTS = [
    {"properties": {"a": {}}, "prefixItems": [{}]},
    {"patternProperties": {"^a": {}}},
    {"additionalProperties": {}, "items": {}},
    {"unevaluatedProperties": True, "unevaluatedItems": True},
    {"unevaluatedProperties": {"type": "null"}, "unevaluatedItems": {"type": "null"}},
    {"contains": {"type": "integer"}},
    {"properties": {"a": {"type": "null"}}, "prefixItems": [{"type": "null"}]},
    {"$ref": "#/$defs/A"},
    {"dependentSchemas": {"a": {"properties": {"b": {}}}, "c": {"properties": {"a": {}, "b": {}}}}},
]
KINDS = {
    "itself": lambda part: part,
    "all of": lambda part: {"allOf": [part]},
    "any of": lambda part: {"anyOf": [{"minProperties": 1, "minItems": 1}, part]},
    "if": lambda part: {"if": part, "then": {"properties": {"b": {}}}, "else": {"properties": {"a": {}}}},
    "not": lambda part: {"not": {"not": part}},
}
VALUES = [{}, {"a": 1}, {"a": None}, {"a": 1, "b": 2}, {"c": 1, "ab": 2}, [], [1], [None], [1, 2], ["x", 1]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", PARTS, ids=lambda part: next(iter(part)))
def test_a_part_speaks_for_its_node_where_the_reference_says_so(kind, part):
    """Also a part that has an `unevaluated…` of its own; not one that the value fails, nor one under `not`."""
    own = {"unevaluatedProperties": False, "unevaluatedItems": False}
    schema = {**own, **KINDS[kind](part), "$defs": {"A": {"properties": {"b": {}}, "prefixItems": [{}, {}]}}}
    for value in VALUES:
        assert Validator(schema).is_valid(value) is Draft202012Validator(schema).is_valid(value), value
