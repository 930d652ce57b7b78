"""Schemas, compiled: kept, bounded, and paid for."""

from reliability.steps import Steps
from reliability.tools import BadSchema, compile_schema
from reliability.tools.schema.compiled import CHARS_KEPT_MAX, SCHEMA_CACHE, SCHEMAS_KEPT_MAX
from tests.support.call_values import made
from tests.support.renderings import tool


def test_compiled_schemas_are_kept_and_bounded():
    """The same schema is compiled once; the memory of schemas has a bound."""
    parameters = {"properties": {"only_here": {"type": "string"}}}

    assert made([tool("f", parameters)]).tools[0].validator is made([tool("g", dict(parameters))]).tools[0].validator

    for i in range(SCHEMAS_KEPT_MAX + 10):
        made([tool("f", {"properties": {f"p{i}": {}}})])
    assert len(SCHEMA_CACHE) == SCHEMAS_KEPT_MAX
    for i in range(12):
        made([tool("f", {"description": f"{i:02}" * 450_000})])
    assert SCHEMA_CACHE.chars <= CHARS_KEPT_MAX


def test_every_schema_is_held_to_the_same_bounds():
    """An answer's schema is compiled as a tool's is, but for its type."""
    assert not isinstance(compile_schema({"type": "array"}, Steps(1_000), arguments=False), BadSchema)
    assert isinstance(compile_schema({"type": "array"}, Steps(1_000), arguments=True), BadSchema)
    assert isinstance(compile_schema({"$ref": "https://x.org/y"}, Steps(1_000), arguments=False), BadSchema)
