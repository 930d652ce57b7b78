"""Schemas, compiled: kept, bounded, and paid for."""

import pytest

from reliability.steps import Steps
from reliability.tools import BadSchema, Compiled, ToolBox, build_toolbox, compile_schema, keep
from reliability.tools.schema.compiled import CHARS_KEPT_MAX, SCHEMA_CACHE, SCHEMAS_KEPT_MAX
from reliability.tools.schema.patterns import translate
from tests.support.call_values import made
from tests.support.renderings import tool


def test_compiled_schemas_are_kept_and_bounded():
    """The same schema is compiled once; the memory of schemas has a bound."""
    parameters = {"properties": {"only_here": {"type": "string"}}}

    one, other = (made([tool(name, dict(parameters))]).tools[0].compiled for name in "fg")
    assert one.validator is other.validator

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


@pytest.mark.parametrize("wrong", [False, True])
def test_what_another_key_has_sent_saves_no_time(wrong):
    """Law: a schema is compiled for each API key that sends it, a bad one too, so that no key can tell by the time
    whether another has sent this very schema. Counter-case: for the same key it is compiled once."""
    given = {"properties": {f"secret_{wrong}": {"type": 7 if wrong else "string"}}}
    spent = []
    for owner in ("a", "b", "a", "b", ""):
        steps = Steps(1_000_000, owner=owner)
        compile_schema(given, steps, arguments=True)
        spent.append(1_000_000 - steps.left)

    assert spent[0] == spent[1] == spent[4]
    assert spent[2] == spent[3] < spent[0]


def test_what_was_compiled_elsewhere_is_its_keys_own():
    """Law: a worker's result is kept for the key that it was compiled for."""
    compiled = compile_schema({"title": "elsewhere"}, Steps(1_000), arguments=True)
    assert isinstance(compiled, Compiled)
    keep(compiled, arguments=True, owner="a")

    assert compile_schema({"title": "elsewhere"}, Steps(1_000, owner="a"), arguments=True) is compiled
    assert compile_schema({"title": "elsewhere"}, Steps(1_000, owner="b"), arguments=True) is not compiled


PATTERNS = {"pattern": "^only-here$", "patternProperties": {"^nor-here$": {"type": "string"}}}


@pytest.mark.parametrize("value", [{"a": "only-here"}, {"a": "x", "nor-here": "y"}])
def test_no_pattern_of_another_key_saves_time(value):
    """Law: a pattern is compiled for each API key, when its schema is read and when an answer is judged by it; reading
    the toolbox of one key leaves nothing to those without a key."""
    parameters = {"properties": {"a": {"type": "string", "pattern": PATTERNS["pattern"]}}}
    parameters |= {"patternProperties": PATTERNS["patternProperties"]}
    translate.cache_clear()
    compiled = []
    for owner in ("a", "b", "a", "b"):
        box = build_toolbox([tool("f", parameters)], None, Steps(1_000_000, owner=owner))
        assert isinstance(box, ToolBox)
        validator = box.tools[0].compiled.validator
        assert validator.is_valid(value, Steps(1_000_000, owner=owner)) is ("only-here" in value["a"])
        compiled.append(translate.cache_info().misses)

    assert compiled == [2, 4, 4, 4]
