"""The tools of a request: schemas as clients really send them, and what is refused with its place."""

import pytest

from reliability.tools import BadTools, build_toolbox
from tests.support.call_values import made
from tests.support.renderings import tool


@pytest.mark.parametrize(
    "parameters", [None, {}, {"type": "object"}, {"properties": {}}, {"type": "object", "properties": None}]
)
def test_a_tool_without_parameters_takes_nothing(parameters):
    """Missing, empty and null parameters are a tool that needs no arguments."""
    box = made([tool("f", parameters)])
    assert box.tools[0].takes_nothing
    assert box.tools[0].validator.is_valid({})


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
        ([tool("a", {"properties": {"b": {"minimum": "x"}}})], "/tools/0/function/parameters/properties/b/minimum"),
        ([tool("a", {"required": "b"})], "/tools/0/function/parameters/required"),
        ([tool("a", {"$ref": "https://remote/schema.json"})], "/tools/0/function/parameters/$ref"),
        ([tool("a", {"properties": {"b": {"$ref": "/$defs/B"}}})], "/tools/0/function/parameters/properties/b/$ref"),
        ([tool("a", {"$ref": "#/$defs/B"})], "/tools/0/function/parameters/$ref"),
        ([tool("a", {"$ref": "#/required/3"})], "/tools/0/function/parameters/$ref"),
        ([tool("a", {"$ref": "#/$defs/B", "$defs": {"B": {"$ref": "#/$defs/B"}}})], "/tools/0/function/parameters"),
        ([tool("a", {"properties": {"b": {"pattern": "["}}})], "/tools/0/function/parameters/properties/b/pattern"),
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
        deep, very_deep, wide, {"$ref": "#/$defs/d0", "$defs": {**doubling, "d20": {}}},
        {"description": "x" * 1_100_000},
    ):  # fmt: skip
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
