"""A schema that is closed for the grammar: never looser than the client's, never unsatisfiable."""

from __future__ import annotations

import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.grammar.compiler import Constraints
from deployments.tiers.mlx.grammar.schema_relaxation import EXACT, narrow
from deployments.tiers.prompt import RequestRefused
from tests.support.minds import KEYS, SCHEMAS, must, tool
from tests.support.tier_asking import ask


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
        ],
    )
    def test_no_schema_takes_the_thread_that_compiles_for_all(self, constraints: Constraints, schema: Any) -> None:
        """Law: what llguidance would compile for ever, or for long, is refused at once; of a tool, less is held."""
        began_s = time.process_time()
        asked = ask(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
        with pytest.raises(RequestRefused):
            constraints.of(asked)
        parameters = {"type": "object", "properties": {"a": schema}, "$defs": schema.get("$defs", {})}
        (note,) = must(constraints, ask(tools=(tool("f", parameters),), tool_choice="required")).notes

        assert "it is checked" in note
        assert time.process_time() - began_s < 3.0
