"""A schema that is closed for the grammar: never looser than the client's, never unsatisfiable."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.grammar.schema_relaxation import EXACT, narrow
from tests.support.minds import KEYS, SCHEMAS


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
