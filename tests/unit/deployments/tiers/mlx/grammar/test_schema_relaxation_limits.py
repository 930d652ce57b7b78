"""Schemas that would keep the compiler for long."""

from __future__ import annotations

import time
from typing import Any

import pytest

from deployments.tiers.mlx.grammar.compiler import Constraints
from deployments.tiers.prompt import Refused
from tests.support.minds import must, tool
from tests.support.tier_asking import ask


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
        with pytest.raises(Refused):
            constraints.of(asked)
        parameters = {"type": "object", "properties": {"a": schema}, "$defs": schema.get("$defs", {})}
        (note,) = must(constraints, ask(tools=(tool("f", parameters),), tool_choice="required")).notes

        assert "it is checked" in note
        assert time.process_time() - began_s < 3.0
