"""Schemas as clients really send them, in today's dialect."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from reliability.steps import Steps
from reliability.tools import BadSchema, compile_schema
from reliability.tools.schema.validator import UNBOUNDED
from tests.support.call_values import made
from tests.support.renderings import tool
from tests.unit.reliability.tools.schema.test_validator import KEYWORDS


def accepts(parameters, value):
    return made([tool("f", parameters)]).tools[0].compiled.validator.is_valid(value)


SCHEMAS = [
    (
        {"properties": {"x~/%25": {"properties": {"b": {"const": 1}, "a": {"$ref": "1/b"}}}}},
        {"x~/%25": {"a": 1}},
        {"x~/%25": {"a": 2}},
    ),
    ({"properties": {"a": {"type": ["str", "float"]}, "b": {"type": "bool"}}}, {"a": 1.5}, {"b": "x"}),
    ({"properties": [], "additionalProperties": [], "required": ["a"]}, {"a": 1}, {}),
    ({"properties": {"a": {"type": "string", "required": True}}}, {"a": "x"}, {}),
    ({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, {"a": 1, "b": 2}, {"c": 1}),
    ({"dependencies": {"a": ["b"]}}, {"b": 2}, {"a": 1}),
    ({"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://x/", "required": ["a"]}, {"a": 1}, {}),
    ({"properties": {"default": {"type": "string", "default": None, "enum": None}}}, {"default": "x"}, {"default": 1}),
    ({"properties": {"a": {"format": "no such format", "x-own": {"pattern": "["}}}}, {"a": "x"}, None),
    ({"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False}, {"x-a": "b"}, {"y": "b"}),
]
# The schema of a property, a value of it and one that it refuses, and what stands around it.
PROPERTIES = [
    ({"items": [{"type": "null"}, {"$ref": "1/0"}]}, [None, None], [None, 1]),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, 1),
    ({"type": "string", "nullable": True}, None, 1),
    ({"type": "string", "enum": ["x"], "nullable": True}, None, "y"),
    ({"oneOf": [{"type": "string"}], "nullable": True}, None, 1),
    ({"type": ["STRING", "null"]}, None, 1),
    ({"type": "list", "items": []}, [1], 1),
    ({"type": ["tuple", "None"]}, None, 1),
    ({"items": [{"type": "string"}], "additionalItems": False}, ["x"], ["x", 1]),
    ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, 2, 1),
    ({"type": "number", "maximum": 1, "exclusiveMaximum": False}, 1, 2),
    ({"type": "string", "format": "date-time"}, "2031-01-02T03:04:05Z", "2031-13-02T03:04:05Z"),
    ({"format": "time"}, "03:04:05+01:00", "3 pm"),
    ({"format": "uri"}, "https://x/y?z=1", "x y"),
    ({"format": "hostname"}, "db.host", "-x-"),
    ({"format": "duration"}, "P1DT2H", "2 h"),
    ({"format": "regex"}, "\\p{L}", "["),
    ({"format": "date"}, "2031-02-28", "2031-02-30"),
    ({"pattern": "^a+$"}, "aa", "aa\n"),
    ({"$ref": "#/$defs/A"}, 1, "x", {"$defs": {"A": {"type": "integer"}}}),
    ({"$ref": "#/definitions/A"}, 1, 2, {"definitions": {"A": {"enum": [1]}}}),
    ({"$ref": "#here"}, None, 1, {"$defs": {"A": {"$anchor": "here", "type": "null"}}}),
    ({"$ref": "#/$defs/x~1y%20z"}, 3, 4, {"$defs": {"x/y z": {"const": 3}}}),
    ({"$ref": "#/$defs/Gr%C3%B6%C3%9Fe%E6%BC%A2"}, 3, 4, {"$defs": {"Größe漢": {"const": 3}}}),
    ({"$ref": "#/properties/b/anyOf/1"}, None, 1, {"properties": {"b": {"anyOf": [{}, {"type": "null"}]}}}),
    ({"$ref": "1/b"}, None, 1, {"properties": {"b": {"type": "null"}}}),
    ({"$ref": "2"}, {}, {"a": 1}, {"type": "object"}),
    ({"$ref": "#/$defs/A", "nullable": True}, None, 1, {"$defs": {"A": {"type": "string"}}}),
    ({"type": "STRING"}, "x", 1, {"type": "OBJECT"}),
    ({"type": "int"}, 1, "x", {"type": "dict"}),
    ({"$ref": "#"}, {"a": {}}, {"b": 1}, {"additionalProperties": False}),
    (
        {"$ref": "#/components/schemas/A"},
        None,
        1,
        {"components": {"schemas": {"A": {"type": "string", "nullable": True}}}},
    ),
    ({"items": [{"type": "null"}, {"$ref": "#/properties/a/items/0"}]}, [None, None], [None, 1]),
]


def place(schema, good, bad, rest=None):
    """A whole schema with this property, and the arguments that it takes and refuses."""
    rest = rest or {}
    return {**rest, "properties": {"a": schema, **rest.get("properties", {})}}, {"a": good}, {"a": bad}


@pytest.mark.parametrize(("parameters", "good", "bad"), [*SCHEMAS, *(place(*row) for row in PROPERTIES)])
def test_schemas_mean_what_their_dialect_says(parameters, good, bad):
    """References, nullable, older drafts, formats and unknown keywords are asserted as they were meant."""
    assert accepts(parameters, good)
    assert bad is None or not accepts(parameters, bad)


def test_the_clients_schema_is_not_changed():
    """Normalising works on a copy."""
    parameters = {"properties": {"a": {"type": "STRING", "nullable": True, "required": True}}}
    before = json.dumps(parameters)
    made([tool("f", parameters)])
    assert json.dumps(parameters) == before


MISTAKES = [1, -1, 1.5, "x", "", True, [], {}, [1], ["a", "a"], ["string"], {"a": 1}, {"a": ["b", "b"]}, [{}], "1x"]


def test_a_schema_is_refused_where_the_meta_schema_refuses_it():
    """One look at each keyword says what the schema of schemas says."""
    said_by_us = {"items": ([{}], ["a", "a"], [1], ["string"], []), "required": (True,), "type": ([],)}
    said_by_us |= {"properties": ([],), "additionalProperties": ([],)}
    for key in [*sorted({*KEYWORDS} - {"$ref", "pattern"}), "$anchor", "title", "$defs", "examples", "deprecated"]:
        for wrong in MISTAKES:
            if any(wrong == other and type(wrong) is type(other) for other in said_by_us.get(key, ())):
                continue  # another draft's way to say it
            if key in ("exclusiveMinimum", "exclusiveMaximum") and wrong is True:
                continue
            if key == "type" and wrong == "":
                continue
            ours = compile_schema({key: wrong}, Steps(UNBOUNDED), arguments=False)
            assert isinstance(ours, BadSchema) != refined(key, wrong), (key, wrong)


def refined(key: str, wrong: Any) -> bool:
    try:
        Draft202012Validator.check_schema({key: wrong})
    except SchemaError:
        return False
    return True
