"""The validator against the reference: the same verdicts, on generated schemas and on recorded ones."""

import pickle
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from reliability.steps import OutOfSteps, Steps
from reliability.tools import BadSchema, compile_schema
from reliability.tools.schema.complaint import SchemaRun
from reliability.tools.schema.patterns import FORMATS
from reliability.tools.schema.validator import UNBOUNDED, Validator
from tests.evals.tool_cases import records

KEYS = ["a", "b", "ab", "x1"]
NUMBERS = [*range(-3, 7), 0.0, 1.0, 1.5, 2.5, 1e3, 10**30]
TEXTS = ["", "a", "ab", "A1", "b-b", "2031-02-29", "2028-02-29", "é", "1.2.3.4", *KEYS]
KINDS = ["string", "number", "integer", "boolean", "object", "array", "null"]
PATTERNS = ["^a", "b$", "^[a-z]+$", "\\d", "^.{2}$", "^(?:a|b)+$"]
SEEDS = 4_000


def value_of(dice: Random, depth: int = 3) -> Any:
    kind = dice.randrange(7 if depth else 5)
    if kind == 5:
        return [value_of(dice, depth - 1) for _ in range(dice.randrange(4))]
    if kind == 6:
        return {key: value_of(dice, depth - 1) for key in dice.sample(KEYS, dice.randrange(4))}
    return dice.choice([None, True, False, dice.choice(NUMBERS), dice.choice(TEXTS), dice.choice(TEXTS)])


def schema_of(dice: Random, depth: int = 3) -> Any:
    """A schema of a few keywords, so that most can be met."""
    if depth == 0 or dice.random() < 0.05:
        return dice.random() < 0.8
    return {key: keyword(key, dice, depth - 1) for key in dice.sample(KEYWORDS, dice.randrange(1, 4))}


def keyword(key: str, dice: Random, depth: int) -> Any:
    if key in SCHEMAS:
        return schema_of(dice, depth)
    if key in LISTS:
        return [schema_of(dice, depth) for _ in range(dice.randrange(1, 4))]
    if key in MEMBERS:
        return {name: schema_of(dice, depth) for name in dice.sample(MEMBERS[key], dice.randrange(4))}
    return OTHERS[key](dice)


def names(dice: Random) -> list[str]:
    return dice.sample(KEYS, dice.randrange(3))


SCHEMAS = ["items", "contains", "unevaluatedItems", "additionalProperties", "unevaluatedProperties", "propertyNames"]
SCHEMAS += ["not", "if", "then", "else"]
LISTS = ["prefixItems", "allOf", "anyOf", "oneOf"]
MEMBERS = {"properties": KEYS, "dependentSchemas": KEYS, "patternProperties": PATTERNS}
OTHERS: dict[str, Any] = {
    "type": lambda dice: dice.choice([dice.choice(KINDS), dice.sample(KINDS, 3)]),
    "enum": lambda dice: [value_of(dice, 1) for _ in range(dice.randrange(5))],
    "const": lambda dice: value_of(dice, 1),
    "multipleOf": lambda dice: dice.randrange(1, 5),
    **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum"], lambda dice: dice.choice(NUMBERS)),
    **dict.fromkeys(["exclusiveMaximum"], lambda dice: dice.choice(NUMBERS)),
    **dict.fromkeys(["minLength", "maxLength", "minItems", "maxItems"], lambda dice: dice.randrange(4)),
    **dict.fromkeys(["minContains", "maxContains", "minProperties"], lambda dice: dice.randrange(4)),
    "maxProperties": lambda dice: dice.randrange(4),
    "pattern": lambda dice: dice.choice(PATTERNS),
    "format": lambda dice: dice.choice(["date", "ipv4", "email", "nothing"]),
    "uniqueItems": lambda dice: dice.random() < 0.8,
    "required": names,
    "dependentRequired": lambda dice: {key: names(dice) for key in names(dice)},
    "$ref": lambda dice: dice.choice(["#/$defs/A", "#/$defs/B", "#/$defs/C", "#"]),
}
KEYWORDS = [*SCHEMAS, *LISTS, *MEMBERS, *OTHERS, "properties", "items", "type", "anyOf"]


def root_of(dice: Random) -> Any:
    return {**keyword_root(dice), "$defs": {name: schema_of(dice, 2) for name in "ABC"}}


def keyword_root(dice: Random) -> Any:
    return {key: keyword(key, dice, 3) for key in dice.sample(KEYWORDS, 3)}


def reference(schema: Any) -> Any:
    return Draft202012Validator(schema, format_checker=FORMATS)


def generated(seeds: int) -> Iterator[tuple[int, Any, Any, Any]]:
    """(seed, compiled, the reference, a value) for each schema that can be used."""
    for seed in range(seeds):
        dice = Random(seed)
        compiled = compile_schema(root_of(dice), Steps(UNBOUNDED), arguments=False)
        if isinstance(compiled, BadSchema):
            assert "leads back" in compiled.message or "multiply" in compiled.message
            continue
        right = reference(compiled.schema)
        for _ in range(4):
            yield seed, compiled, right, value_of(dice)


def test_the_verdict_is_that_of_the_reference():
    """Whatever the schema and the value, it is valid here where it is valid for jsonschema."""
    verdicts = {True: 0, False: 0}
    for seed, compiled, right, value in generated(SEEDS):
        verdict = compiled.validator.is_valid(value)
        assert verdict == right.is_valid(value), (seed, compiled.schema, value)
        verdicts[verdict] += 1
    assert min(verdicts.values()) > SEEDS / 2


def test_the_places_are_those_of_the_reference():
    """What a model is told stands at the places that jsonschema names."""
    for seed, compiled, right, value in generated(SEEDS // 4):
        if "unevaluated" in compiled.text or "false" in compiled.text:
            continue  # named by item here, by list there
        ours = {complaint.path for complaint in compiled.validator.complaints(value, SchemaRun(Steps(UNBOUNDED)))}
        theirs = {tuple(error.absolute_path) for error in right.iter_errors(value)}
        assert ours == theirs, (seed, compiled.schema, value)


def test_recorded_calls_get_the_verdict_of_the_reference():
    """Tools and calls as they were recorded, right ones and damaged ones."""
    compared = 0
    for case in records("bfcl_cases"):
        schemas_of = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in case["tools"]}
        for call in case["ground_truth"]:
            compiled = compile_schema(schemas_of[call["name"]], Steps(UNBOUNDED), arguments=True)
            assert not isinstance(compiled, BadSchema)
            right = reference(compiled.schema)
            for value in damaged(call["arguments"]):
                compared += 1
                assert compiled.validator.is_valid(value) == right.is_valid(value)
    assert compared > 50


def damaged(arguments):
    """The arguments, and what comes of them with one of them gone, written as text, or null."""
    yield arguments
    for key in arguments:
        yield {k: v for k, v in arguments.items() if k != key}
        yield {**arguments, key: str(arguments[key])}
        yield {**arguments, key: None}


def test_a_validator_can_be_sent_to_another_process():
    """It arrives with the same rules."""
    again = pickle.loads(pickle.dumps(Validator({"properties": {"a": {"pattern": "^b$"}}})))
    assert again.is_valid({"a": "b"})
    assert not again.is_valid({"a": "c"})


def test_a_verdict_doesnt_depend_on_the_steps():
    """With fewer steps there is no verdict; there is never another one."""
    validator = Validator({"items": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "null"}}]}})
    value: Any = ["a", [None, None], "b", [None, 1]]
    for left in range(200):
        try:
            assert validator.is_valid(value, Steps(left)) is False
        except OutOfSteps:
            assert left < 40


@pytest.mark.parametrize(
    ("multiple", "value", "valid"),
    [(0.1, 0.3, True), (0.01, 4.35, True), (0.1, 0.35, False), (1e-300, 1e300, True), (3, 10**400, False)],
)
def test_numbers_are_compared_as_they_are_written(multiple, value, valid):
    """0.3 is a multiple of 0.1, whatever binary fractions say."""
    assert Validator({"multipleOf": multiple}).is_valid(value) is valid


# Which members and items a schema speaks of.
PARTS = [
    {"properties": {"a": {}}, "prefixItems": [{}]},
    {"patternProperties": {"^a": {}}},
    {"additionalProperties": {}, "items": {}},
    {"unevaluatedProperties": True, "unevaluatedItems": True},
    {"unevaluatedProperties": {"type": "null"}, "unevaluatedItems": {"type": "null"}},
    {"contains": {"type": "integer"}},
    {"properties": {"a": {"type": "null"}}, "prefixItems": [{"type": "null"}]},
    {"$ref": "#/$defs/A"},
    {"dependentSchemas": {"a": {"properties": {"b": {}}}, "c": {"properties": {"a": {}, "b": {}}}}},
]
FRAMES = {
    "itself": lambda part: part,
    "all of": lambda part: {"allOf": [part]},
    "any of": lambda part: {"anyOf": [{"minProperties": 1, "minItems": 1}, part]},
    "if": lambda part: {"if": part, "then": {"properties": {"b": {}}}, "else": {"properties": {"a": {}}}},
    "not": lambda part: {"not": {"not": part}},
}
VALUES = [{}, {"a": 1}, {"a": None}, {"a": 1, "b": 2}, {"c": 1, "ab": 2}, [], [1], [None], [1, 2], ["x", 1]]


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("part", PARTS, ids=lambda part: next(iter(part)))
def test_a_part_speaks_for_its_node_where_the_reference_says_so(kind, part):
    """Also a part that has an `unevaluated…` of its own; not one that the value fails, nor one under `not`."""
    own = {"unevaluatedProperties": False, "unevaluatedItems": False}
    schema = {**own, **FRAMES[kind](part), "$defs": {"A": {"properties": {"b": {}}, "prefixItems": [{}, {}]}}}
    for value in VALUES:
        assert Validator(schema).is_valid(value) is Draft202012Validator(schema).is_valid(value), value
