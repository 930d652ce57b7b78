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
    return made([tool("f", parameters)]).tools[0].validator.is_valid(value)


@pytest.mark.parametrize(
    ("parameters", "good", "bad"),
    [
        ({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "integer"}}}, {"a": 1}, {"a": "x"}),
        ({"properties": {"a": {"$ref": "#/definitions/A"}}, "definitions": {"A": {"enum": [1]}}}, {"a": 1}, {"a": 2}),
        (
            {"properties": {"a": {"$ref": "#here"}}, "$defs": {"A": {"$anchor": "here", "type": "null"}}},
            {"a": None},
            {"a": 1},
        ),
        ({"properties": {"a": {"$ref": "#/$defs/x~1y%20z"}}, "$defs": {"x/y z": {"const": 3}}}, {"a": 3}, {"a": 4}),
        (
            {"properties": {"a": {"$ref": "#/$defs/Gr%C3%B6%C3%9Fe%E6%BC%A2"}}, "$defs": {"Größe漢": {"const": 3}}},
            {"a": 3},
            {"a": 4},
        ),
        (
            {"properties": {"a": {"$ref": "#/properties/b/anyOf/1"}, "b": {"anyOf": [{}, {"type": "null"}]}}},
            {"a": None},
            {"a": 1},
        ),
        ({"properties": {"b": {"type": "null"}, "a": {"$ref": "1/b"}}}, {"a": None}, {"a": 1}),
        (
            {"properties": {"x~/%25": {"properties": {"b": {"const": 1}, "a": {"$ref": "1/b"}}}}},
            {"x~/%25": {"a": 1}},
            {"x~/%25": {"a": 2}},
        ),
        ({"type": "object", "properties": {"a": {"$ref": "2"}}}, {"a": {}}, {"a": {"a": 1}}),
        (
            {"properties": {"a": {"items": [{"type": "null"}, {"$ref": "#/properties/a/items/0"}]}}},
            {"a": [None, None]},
            {"a": [None, 1]},
        ),
        ({"properties": {"a": {"items": [{"type": "null"}, {"$ref": "1/0"}]}}}, {"a": [None, None]}, {"a": [None, 1]}),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, {"a": None}, {"a": 1}),
        ({"properties": {"a": {"type": "string", "nullable": True}}}, {"a": None}, {"a": 1}),
        ({"properties": {"a": {"type": "string", "enum": ["x"], "nullable": True}}}, {"a": None}, {"a": "y"}),
        (
            {"properties": {"a": {"$ref": "#/$defs/A", "nullable": True}}, "$defs": {"A": {"type": "string"}}},
            {"a": None},
            {"a": 1},
        ),
        ({"properties": {"a": {"oneOf": [{"type": "string"}], "nullable": True}}}, {"a": None}, {"a": 1}),
        ({"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}, {"a": "x"}, {"a": 1}),
        ({"properties": {"a": {"type": ["STRING", "null"]}}}, {"a": None}, {"a": 1}),
        ({"type": "dict", "properties": {"a": {"type": "int"}}}, {"a": 1}, {"a": "x"}),
        ({"properties": {"a": {"type": ["str", "float"]}, "b": {"type": "bool"}}}, {"a": 1.5}, {"b": "x"}),
        ({"properties": {"a": {"type": "list", "items": []}}}, {"a": [1]}, {"a": 1}),
        ({"properties": {"a": {"type": ["tuple", "None"]}}}, {"a": None}, {"a": 1}),
        ({"properties": [], "additionalProperties": [], "required": ["a"]}, {"a": 1}, {}),
        ({"properties": {"a": {"type": "string", "required": True}}}, {"a": "x"}, {}),
        (
            {"properties": {"a": {"items": [{"type": "string"}], "additionalItems": False}}},
            {"a": ["x"]},
            {"a": ["x", 1]},
        ),
        ({"properties": {"a": {"type": "number", "minimum": 1, "exclusiveMinimum": True}}}, {"a": 2}, {"a": 1}),
        ({"properties": {"a": {"type": "number", "maximum": 1, "exclusiveMaximum": False}}}, {"a": 1}, {"a": 2}),
        ({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, {"a": 1, "b": 2}, {"c": 1}),
        ({"dependencies": {"a": ["b"]}}, {"b": 2}, {"a": 1}),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://x/", "required": ["a"]}, {"a": 1}, {}),
        (
            {"properties": {"default": {"type": "string", "default": None, "enum": None}}},
            {"default": "x"},
            {"default": 1},
        ),
        (
            {"properties": {"a": {"type": "string", "format": "date-time"}}},
            {"a": "2031-01-02T03:04:05Z"},
            {"a": "2031-13-02T03:04:05Z"},
        ),
        ({"properties": {"a": {"format": "time"}}}, {"a": "03:04:05+01:00"}, {"a": "3 pm"}),
        ({"properties": {"a": {"format": "uri"}}}, {"a": "https://x/y?z=1"}, {"a": "x y"}),
        ({"properties": {"a": {"format": "hostname"}}}, {"a": "db.host"}, {"a": "-x-"}),
        ({"properties": {"a": {"format": "duration"}}}, {"a": "P1DT2H"}, {"a": "2 h"}),
        ({"properties": {"a": {"format": "regex"}}}, {"a": "\\p{L}"}, {"a": "["}),
        ({"properties": {"a": {"format": "date"}}}, {"a": "2031-02-28"}, {"a": "2031-02-30"}),
        ({"properties": {"a": {"format": "no such format", "x-own": {"pattern": "["}}}}, {"a": "x"}, None),
        ({"properties": {"a": {"pattern": "^a+$"}}}, {"a": "aa"}, {"a": "aa\n"}),
        ({"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False}, {"x-a": "b"}, {"y": "b"}),
        ({"properties": {"a": {"$ref": "#"}}, "additionalProperties": False}, {"a": {"a": {}}}, {"a": {"b": 1}}),
        (
            {
                "components": {"schemas": {"A": {"type": "string", "nullable": True}}},
                "properties": {"a": {"$ref": "#/components/schemas/A"}},
            },
            {"a": None},
            {"a": 1},
        ),
    ],
)
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
