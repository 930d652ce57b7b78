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
    assert box.tools[0].compiled.validator.is_valid({})


NAME, PARAMETERS = "/tools/0/function/name", "/tools/0/function/parameters"
# Parameters of a tool that can't be used, and where in them the mistake is.
BAD_PARAMETERS = [
    ([], ""), ({"x": {1, 2}}, ""), ({"type": "string"}, "/type"), ({"type": "nonsense"}, "/type"),
    ({"properties": {"b": {"type": 3}}}, "/properties/b/type"), ({"required": "b"}, "/required"),
    ({"properties": {"b": {"minimum": "x"}}}, "/properties/b/minimum"),
    ({"$ref": "https://remote/schema.json"}, "/$ref"), ({"$ref": "#/$defs/B"}, "/$ref"),
    ({"properties": {"b": {"$ref": "/$defs/B"}}}, "/properties/b/$ref"), ({"$ref": "#/required/3"}, "/$ref"),
    ({"$ref": "#/$defs/B", "$defs": {"B": {"$ref": "#/$defs/B"}}}, ""),
    ({"properties": {"b": {"pattern": "["}}}, "/properties/b/pattern"),
    ({"patternProperties": {"(": {}}}, "/patternProperties/("),
]  # fmt: skip


@pytest.mark.parametrize(("tools", "path"), [
    ("x", "/tools"), ([1], "/tools/0"), ([{"type": "function"}], "/tools/0/function"),
    ([{"type": "retrieval"}], "/tools/0/type"),
    *(([tool(name, {})], NAME) for name in ("", "get weather", "x" * 129, None)),
    ([tool("a", {}), tool("b", {}), tool("a", {})], "/tools/2/function/name"),
    *(([tool("a", given)], PARAMETERS + place) for given, place in BAD_PARAMETERS),
])  # fmt: skip
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
    wrong = build_toolbox([tool("a b", {})]).message
    assert build_toolbox(None, [{"name": "a b"}]) == BadTools("/functions/0/name", wrong)
    assert isinstance(build_toolbox([tool("f", {})], [{"name": "f"}]), BadTools)
