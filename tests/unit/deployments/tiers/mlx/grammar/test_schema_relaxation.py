"""What a request demands of the model's words."""

import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.grammar.compiler import _CALLS_MAX, Constraints, _read_demand
from deployments.tiers.mlx.grammar.schema_relaxation import EXACT, narrow
from deployments.tiers.prompt import RequestRefused
from reliability.types import Fault
from tests.support.minds import CITY, KEYS, SCHEMAS, Mind, json_answer, must, says, spoken, tool
from tests.support.tier_asking import WEATHER_TOOL, ask

NAMED_G = {"type": "function", "function": {"name": "g"}}
ALLOWED = {"type": "allowed_tools", "tools": [{"name": "f"}]}


class TestDemands:
    @pytest.mark.parametrize(
        ("fields", "names", "calls_max"),
        [
            ({"tool_choice": "required"}, ["f", "g"], 1),
            ({"tool_choice": "required", "parallel_tool_calls": True}, ["f", "g"], _CALLS_MAX),
            ({"tool_choice": "any", "parallel_tool_calls": False}, ["f", "g"], 1),
            ({"tool_choice": NAMED_G}, ["g"], 1),
            ({"tool_choice": NAMED_G, "parallel_tool_calls": True}, ["g"], 1),
            ({"constrained": True}, ["f", "g"], 1),
            ({"constrained": True, "tool_choice": "auto", "calls_tried": 3}, ["f", "g"], 3),
            ({"constrained": True, "calls_tried": 99}, ["f", "g"], _CALLS_MAX),
            ({"constrained": True, "calls_tried": 3, "parallel_tool_calls": False}, ["f", "g"], 1),
            ({"tool_choice": ALLOWED | {"mode": "required"}, "parallel_tool_calls": True}, ["f"], _CALLS_MAX),
        ],
    )
    def test_calls(self, fields: dict[str, Any], names: list[str], calls_max: int) -> None:
        """Law: a demand names the tools that may be called and how often: once, unless the request asks for several or
        the model itself tried several."""
        demand = _read_demand(ask(tools=(tool("f", CITY), tool("g", CITY)), **fields))
        assert ([one.name for one in demand.tools], demand.calls_max) == (names, calls_max)
        assert demand.schema is None

    def test_a_look(self) -> None:
        """Law: who must look may call none but these tools."""
        tools = (tool("place_order", CITY), tool("read_file", CITY), tool("f", CITY))
        demand = _read_demand(ask(tools=tools, constrained=True, must_look=("read_file",)))
        assert [one.name for one in demand.tools] == ["read_file"]

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"tool_choice": "auto"},
            {"tool_choice": "none", "constrained": True},
            {"tool_choice": ALLOWED | {"mode": "auto"}},
            {"response_format": {"type": "text"}},
        ],
    )
    def test_no_demand(self, fields: dict[str, Any]) -> None:
        """Law: nobody is put under a grammar who wasn't asked to be."""
        assert _read_demand(ask(tools=(tool("f", CITY),), **fields)) is None

    def test_json_or_calls(self, constraints: Constraints, tokenizer: Any) -> None:
        """Law: with tools and a response format the model may do either, and nothing else."""
        request = json_answer(CITY, tools=(WEATHER_TOOL,))
        words = {spoken(tokenizer, says(must(constraints, request).masker(), Mind(seed)))[0] for seed in range(8)}
        assert words == {"<", "{"}

    @pytest.mark.parametrize(
        ("param", "fields"),
        [
            ("tool_choice", {"tool_choice": {"type": "function", "function": {"name": "zzz"}}}),
            ("response_format", {"response_format": {"type": "json_schema", "json_schema": {}}}),
            ("response_format", {"response_format": {"type": "xml"}}),
            *(
                ("response_format", {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}})
                for schema in (
                    *({"$ref": "http://x/y"}, {"$ref": "#/nowhere"}, {"properties": {"a": 5}}, {"type": "strong"}),
                    {"type": "object", "properties": {"a": {}}, "required": 5},
                )
            ),
        ],
    )
    def test_what_cant_be_meant_is_the_requests_fault(self, param: str, fields: dict[str, Any]) -> None:
        """Law: nonsense is a bad request that names the field."""
        with pytest.raises(RequestRefused) as caught:
            _read_demand(ask(tools=(tool("f", CITY),), **fields))
        assert (caught.value.failed.fault, caught.value.failed.param) == (Fault.BAD_REQUEST, param)


class TestNarrowing:
    @settings(deadline=None, max_examples=60)
    @given(
        schema=SCHEMAS,
        value=st.recursive(
            st.sampled_from(["", "é", "ab", 5, 1.5, None, True, "2020-01-01"]),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS | st.just("other"), inner, max_size=3),
        ),
    )
    def test_the_exact_rung_is_never_looser(self, schema: Any, value: Any) -> None:
        """Law: what the closed schema allows, the client's allows."""
        _, closed = next(narrow(schema, arguments=False))
        allowed = jsonschema.Draft202012Validator(schema).is_valid(value)
        narrower = jsonschema.Draft202012Validator(closed).is_valid(value)
        assert allowed or not narrower

    @pytest.mark.parametrize(
        "schema",
        [
            {"properties": {"a": {}}, "required": ["b"]},
            {"properties": {"a": {}}, "anyOf": [{"required": ["b"]}, {"required": ["c"]}]},
            {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
            {"properties": {"a": {}}, "minProperties": 2},
            {"properties": {"a": {}}, "patternProperties": {"^x": {}}},
            {"type": "object"},
        ],
    )
    def test_an_object_that_may_need_more_keys_stays_open(self, schema: dict[str, Any]) -> None:
        """Law: closing never makes a schema unsatisfiable or contradicts it."""
        rung, closed = next(narrow(schema, arguments=False))
        assert rung == EXACT
        assert closed.get("additionalProperties", "open") == schema.get("additionalProperties", "open")

    def test_a_tool_without_parameters_takes_none(self) -> None:
        """Law: arguments are an object; one that declares nothing takes nothing."""
        _, closed = next(narrow({}, arguments=True))
        assert (closed["type"], closed["properties"], closed["additionalProperties"]) == ("object", {}, False)


class TestRefusals:
    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "string", "allOf": [{"pattern": f"a{{{i}}}.*b"} for i in range(1, 40)]},
            {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"pattern": f"{i}.*b"} for i in range(40)]}}},
            {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(9_000)}},
            {"type": "integer", "multipleOf": 999_983},
            {"type": "number", "multipleOf": 9_999.83},
            {"type": "integer", "allOf": [{"multipleOf": prime} for prime in (7, 11, 13, 17, 19, 23, 29)]},
            {"multipleOf": 991, "anyOf": [{"$ref": "#/$defs/a"}, {}], "$defs": {"a": {"multipleOf": 997}}},
            {"type": "array", "prefixItems": [{"type": "integer", "multipleOf": 100 + i} for i in range(200)]},
        ],
    )
    def test_no_schema_takes_the_thread_that_compiles_for_all(self, constraints: Constraints, schema: Any) -> None:
        """Law: what llguidance would compile for ever, or for long, is refused at once; of a tool, less is held."""
        began_s = time.process_time()
        with pytest.raises(RequestRefused):
            constraints.of(json_answer(schema))
        parameters = {"type": "object", "properties": {"a": schema}, "$defs": schema.get("$defs", {})}
        (note,) = must(constraints, ask(tools=(tool("f", parameters),), tool_choice="required")).notes

        assert "it is checked" in note
        assert time.process_time() - began_s < 3.0

    @pytest.mark.parametrize("multiple", [7, 0.01, 1e-8, 2.5, 3_600])
    def test_a_multiple_as_people_write_them_is_held(self, constraints: Constraints, multiple: float) -> None:
        """Law: the bound on multiples leaves those alone that schemas have."""
        properties = {"a": {"type": "number", "multipleOf": multiple}, "multipleOf": {"type": "number"}}
        assert must(constraints, json_answer({"type": "object", "properties": properties})).notes == ()

    def test_all_tools_together_hold_so_many_multiples(self, constraints: Constraints) -> None:
        """Law: what one schema may cost, a hundred tools may not cost a hundred times."""
        fields = [{"properties": {"a": {"type": "integer", "multipleOf": 9_000 + i}}} for i in range(40)]
        tools = tuple(tool(f"f{i}", one) for i, one in enumerate(fields))
        assert 25 < len(must(constraints, ask(tools=tools, tool_choice="required")).notes) < 40
