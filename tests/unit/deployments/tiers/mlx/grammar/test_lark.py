"""What a request demands of the model's words."""

from __future__ import annotations

from typing import Any

import pytest

from deployments.tiers.mlx.grammar.compiler import Constraints
from deployments.tiers.mlx.grammar.lark import CALLS_MAX, demand_of
from deployments.tiers.prompt import RequestRefused
from reliability.types import Fault
from tests.support.minds import CITY, Mind, json_answer, must, says, spoken, tool
from tests.support.tier_asking import WEATHER_TOOL, ask

NAMED_G = {"type": "function", "function": {"name": "g"}}


class TestDemands:
    @pytest.mark.parametrize(
        ("fields", "names", "calls_max"),
        [
            ({"tool_choice": "required"}, ["f", "g"], 1),
            ({"tool_choice": "required", "parallel_tool_calls": True}, ["f", "g"], CALLS_MAX),
            ({"tool_choice": "any", "parallel_tool_calls": False}, ["f", "g"], 1),
            ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, ["g"], 1),
            ({"tool_choice": NAMED_G, "parallel_tool_calls": True}, ["g"], 1),
            ({"constrained": True}, ["f", "g"], 1),
            ({"constrained": True, "tool_choice": "auto", "calls_tried": 3}, ["f", "g"], 3),
            ({"constrained": True, "calls_tried": 99}, ["f", "g"], CALLS_MAX),
            ({"constrained": True, "calls_tried": 3, "parallel_tool_calls": False}, ["f", "g"], 1),
            (
                {
                    "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"name": "f"}]},
                    "parallel_tool_calls": True,
                },
                ["f"],
                CALLS_MAX,
            ),
        ],
    )
    def test_calls(self, fields: dict[str, Any], names: list[str], calls_max: int) -> None:
        """Law: a demand names the tools that may be called and how often: once, unless the request asks for several or
        the model itself tried several."""
        demand = demand_of(ask(tools=(tool("f", CITY), tool("g", CITY)), **fields))
        assert demand is not None
        assert ([one.name for one in demand.tools], demand.calls_max) == (names, calls_max)
        assert demand.schema is None

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"tool_choice": "auto"},
            {"tool_choice": "none", "constrained": True},
            {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "f"}]}},
            {"response_format": {"type": "text"}},
        ],
    )
    def test_no_demand(self, fields: dict[str, Any]) -> None:
        """Law: nobody is put under a grammar who wasn't asked to be."""
        assert demand_of(ask(tools=(tool("f", CITY),), **fields)) is None

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
                    {"$ref": "http://x/y"},
                    {"$ref": "#/nowhere"},
                    {"type": "object", "properties": {"a": {}}, "required": 5},
                    {"properties": {"a": 5}},
                    {"type": "strong"},
                )
            ),
        ],
    )
    def test_what_cant_be_meant_is_the_requests_fault(self, param: str, fields: dict[str, Any]) -> None:
        """Law: nonsense is a bad request that names the field."""
        with pytest.raises(RequestRefused) as caught:
            demand_of(ask(tools=(tool("f", CITY),), **fields))
        assert (caught.value.failed.fault, caught.value.failed.param) == (Fault.BAD_REQUEST, param)
