"""The tools of a request: schemas as clients really send them, and what is refused with its place."""

from __future__ import annotations

import json

import pytest

from reliability.tools import BadTools, build_toolbox
from reliability.tools.schema.compiled import CHARS_KEPT_MAX, KEPT, SCHEMAS_KEPT_MAX
from reliability.tools.schema.types_allowed import allowed, property_schema
from tests.reliability.renderings import tool
from tests.reliability.values import made


def accepts(parameters, value):
    return made([tool("f", parameters)]).tools[0].validator.is_valid(value)


@pytest.mark.parametrize(
    "parameters", [None, {}, {"type": "object"}, {"properties": {}}, {"type": "object", "properties": None}]
)
def test_a_tool_without_parameters_takes_nothing(parameters):
    """Missing, empty and null parameters are a tool that needs no arguments."""
    box = made([tool("f", parameters)])

    assert box.tools[0].takes_nothing
    assert box.tools[0].validator.is_valid({})


@pytest.mark.parametrize(
    ("parameters", "good", "bad"),
    [
        (
            {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "integer"}}},
            {"a": 1},
            {"a": "x"},
        ),
        (
            {"properties": {"a": {"$ref": "#/definitions/A"}}, "definitions": {"A": {"enum": [1]}}},
            {"a": 1},
            {"a": 2},
        ),
        (
            {"properties": {"a": {"$ref": "#here"}}, "$defs": {"A": {"$anchor": "here", "type": "null"}}},
            {"a": None},
            {"a": 1},
        ),
        (
            {"properties": {"a": {"$ref": "#/$defs/x~1y%20z"}}, "$defs": {"x/y z": {"const": 3}}},
            {"a": 3},
            {"a": 4},
        ),
        (
            {"properties": {"a": {"$ref": "#/properties/b/anyOf/1"}, "b": {"anyOf": [{}, {"type": "null"}]}}},
            {"a": None},
            {"a": 1},
        ),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, {"a": None}, {"a": 1}),
        ({"properties": {"a": {"type": "string", "nullable": True}}}, {"a": None}, {"a": 1}),
        ({"properties": {"a": {"type": "string", "enum": ["x"], "nullable": True}}}, {"a": None}, {"a": "y"}),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/A", "nullable": True}},
                "$defs": {"A": {"type": "string"}},
            },
            {"a": None},
            {"a": 1},
        ),
        ({"properties": {"a": {"oneOf": [{"type": "string"}], "nullable": True}}}, {"a": None}, {"a": 1}),
        ({"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}, {"a": "x"}, {"a": 1}),
        ({"properties": {"a": {"type": ["STRING", "null"]}}}, {"a": None}, {"a": 1}),
        ({"properties": {"a": {"type": "string", "required": True}}}, {"a": "x"}, {}),
        (
            {"properties": {"a": {"items": [{"type": "string"}], "additionalItems": False}}},
            {"a": ["x"]},
            {"a": ["x", 1]},
        ),
        (
            {"properties": {"a": {"type": "number", "minimum": 1, "exclusiveMinimum": True}}},
            {"a": 2},
            {"a": 1},
        ),
        (
            {"properties": {"a": {"type": "number", "maximum": 1, "exclusiveMaximum": False}}},
            {"a": 1},
            {"a": 2},
        ),
        ({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}}, {"a": 1, "b": 2}, {"c": 1}),
        ({"dependencies": {"a": ["b"]}}, {"b": 2}, {"a": 1}),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://x/", "required": ["a"]},
            {"a": 1},
            {},
        ),
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
        (
            {"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False},
            {"x-a": "b"},
            {"y": "b"},
        ),
        (
            {"properties": {"a": {"$ref": "#"}}, "additionalProperties": False},
            {"a": {"a": {}}},
            {"a": {"b": 1}},
        ),
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


@pytest.mark.parametrize(
    ("tools", "path"),
    [
        ("x", "/tools"),
        ([1], "/tools/0"),
        ([{"type": "function"}], "/tools/0/function"),
        ([{"type": "retrieval"}], "/tools/0/type"),
        ([tool("", {})], "/tools/0/function/name"),
        ([tool("get weather", {})], "/tools/0/function/name"),
        ([tool("x" * 129, {})], "/tools/0/function/name"),
        ([tool(None, {})], "/tools/0/function/name"),
        ([tool("a", {}), tool("b", {}), tool("a", {})], "/tools/2/function/name"),
        ([tool("a", [])], "/tools/0/function/parameters"),
        ([tool("a", {"x": {1, 2}})], "/tools/0/function/parameters"),
        ([tool("a", {"type": "string"})], "/tools/0/function/parameters/type"),
        ([tool("a", {"type": "nonsense"})], "/tools/0/function/parameters/type"),
        ([tool("a", {"properties": {"b": {"type": 3}}})], "/tools/0/function/parameters/properties/b/type"),
        (
            [tool("a", {"properties": {"b": {"minimum": "x"}}})],
            "/tools/0/function/parameters/properties/b/minimum",
        ),
        ([tool("a", {"required": "b"})], "/tools/0/function/parameters/required"),
        ([tool("a", {"$ref": "https://remote/schema.json"})], "/tools/0/function/parameters/$ref"),
        (
            [tool("a", {"properties": {"b": {"$ref": "/$defs/B"}}})],
            "/tools/0/function/parameters/properties/b/$ref",
        ),
        ([tool("a", {"$ref": "#/$defs/B"})], "/tools/0/function/parameters/$ref"),
        ([tool("a", {"$ref": "#/required/3"})], "/tools/0/function/parameters/$ref"),
        (
            [tool("a", {"$ref": "#/$defs/B", "$defs": {"B": {"$ref": "#/$defs/B"}}})],
            "/tools/0/function/parameters",
        ),
        (
            [tool("a", {"properties": {"b": {"pattern": "["}}})],
            "/tools/0/function/parameters/properties/b/pattern",
        ),
        ([tool("a", {"patternProperties": {"(": {}}})], "/tools/0/function/parameters/patternProperties/("),
    ],
)
def test_bad_tools_are_the_clients_mistake_with_a_place(tools, path):
    """What can't be used is a value that names its place in the request; nothing raises and nothing is
    fetched."""
    bad = build_toolbox(tools)

    assert isinstance(bad, BadTools)
    assert bad.path == path
    assert bad.message


def test_hostile_schemas_are_refused():
    """Depth, size and references that multiply have bounds."""
    deep: dict = {}
    for _ in range(80):
        deep = {"properties": {"a": deep}}
    very_deep: dict = {}
    for _ in range(100_000):
        very_deep = {"not": very_deep}
    doubling = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(20)}
    wide = {"properties": {str(i): {} for i in range(30_000)}}
    for parameters in (
        deep,
        very_deep,
        wide,
        {"$ref": "#/$defs/d0", "$defs": {**doubling, "d20": {}}},
        {"description": "x" * 1_100_000},
    ):
        bad = build_toolbox([tool("a", parameters)])
        assert isinstance(bad, BadTools)
        assert bad.path.startswith("/tools/0/function/parameters")
    assert isinstance(build_toolbox([tool(f"t{i}", {}) for i in range(1_025)]), BadTools)


def test_legacy_functions_and_flat_tools_are_tools():
    """`functions`, Responses-style flat tools and Anthropic's `input_schema` mean the same; strict and
    description are kept."""
    legacy = made(None, [{"name": "f", "description": "says", "parameters": {"required": ["a"]}}])
    flat = made([{"type": "function", "name": "f", "strict": True, "input_schema": {"required": ["a"]}}])

    assert legacy.tools[0].required == flat.tools[0].required == ("a",)
    assert legacy.tools[0].description == "says"
    assert flat.tools[0].strict
    assert made(None).names == made([]).names == ()
    assert build_toolbox(None, [{"name": "a b"}]) == BadTools(
        "/functions/0/name", build_toolbox([tool("a b", {})]).message
    )
    assert isinstance(build_toolbox([tool("f", {})], [{"name": "f"}]), BadTools)


def test_names_are_found_without_a_guess():
    """Case, - and _, and a `functions.` prefix are forgiven where one tool answers, not two."""
    box = made([tool("get_weather", {}), tool("Read-File", {}), tool("read_file", {})])

    assert box.find("get_weather") is box.find("Get-Weather") is box.find("functions.get_weather") is box.tools[0]
    assert box.find("Read-File") is box.tools[1]
    assert box.find("READ_FILE") is None
    assert box.find("get_wether") is None


def test_the_clients_schema_is_not_changed():
    """Normalising works on a copy."""
    parameters = {"properties": {"a": {"type": "STRING", "nullable": True, "required": True}}}
    before = json.dumps(parameters)

    made([tool("f", parameters)])

    assert json.dumps(parameters) == before


def test_compiled_schemas_are_kept_and_bounded():
    """The same schema is compiled once; the memory of schemas has a bound."""
    parameters = {"properties": {"only_here": {"type": "string"}}}

    assert made([tool("f", parameters)]).tools[0].validator is made([tool("g", dict(parameters))]).tools[0].validator

    for i in range(SCHEMAS_KEPT_MAX + 10):
        made([tool("f", {"properties": {f"p{i}": {}}})])
    assert len(KEPT) == SCHEMAS_KEPT_MAX
    for i in range(12):
        made([tool("f", {"description": f"{i:02}" * 450_000})])
    assert KEPT.chars <= CHARS_KEPT_MAX


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"$ref": "https://remote/schema.json"}, "only references inside the schema"),
        ({"$ref": "#/$defs/B"}, "'#/$defs/B' leads nowhere"),
        ({"$ref": "#/$defs/B", "$defs": {"B": {"anyOf": [{"$ref": "#/$defs/B"}]}}}, "leads back to itself"),
    ],
)
def test_bad_references_are_told_apart(parameters, said):
    """The client is told what is wrong with a reference: where it leads, found out without following it."""
    bad = build_toolbox([tool("a", parameters)])

    assert isinstance(bad, BadTools)
    assert said in bad.message


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

    assert allowed(schema, root) == kinds


def test_a_property_is_found_wherever_its_schema_stands():
    """Through references and alternatives, and in `additionalProperties`; nowhere is None."""
    root = {"$defs": {"A": {"properties": {"b": {"type": "null"}}}}}
    either = {"$ref": "#/$defs/A", "anyOf": [{"properties": {"b": {"type": "string"}}}]}

    assert allowed(property_schema(either, root, "b"), root) == {"null", "string"}
    assert property_schema({"$ref": "#/$defs/A"}, root, "b") == {"type": "null"}
    assert property_schema({"additionalProperties": {"type": "array"}}, root, "b") == {"type": "array"}
    assert property_schema({"additionalProperties": False}, root, "b") is None
    assert property_schema(True, root, "b") is None
