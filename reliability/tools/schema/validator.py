"""JSON Schema, draft 2020-12: a value against a schema, in counted steps.

One walk, keyword by keyword, over a schema that was normalised and checked before. jsonschema is right, and tests hold
this module against it, but it has no bound (docs/decisions/020-json-schema-in-counted-steps.md). Each (schema, value)
pair is judged once (`SchemaRun.known`), and every visit is a step.

A rule takes (validator, what stands behind the keyword, value, the node that it stands in, run) and gives back
complaints; `_RULES` says for which types of values. Numbers are compared as they are written: 0.3 is a multiple of 0.1.
Values are compared as JSON: 1 is 1.0 and not true.

Invariants: no verdict depends on how many steps were left, other than `OutOfSteps`; no key or pattern of the client
reaches Python's `re`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from reliability.steps import Steps
from reliability.tools.schema.complaint import ERRORS_MAX, KEYS_MAX, Complaint, SchemaRun, prefix_paths, write_canonical
from reliability.tools.schema.dialects import is_number
from reliability.tools.schema.patterns import FORMATS, translate
from reliability.tools.schema.references import anchors_of, resolve

UNBOUNDED = 1 << 62
_CHARS_A_STEP = 20  # of a text whose format is checked
_Wrong = Sequence[Complaint]
_Node = Mapping[str, Any]
_Rule = Callable[["Validator", Any, Any, _Node, SchemaRun], _Wrong]


class Validator:
    """One schema, ready. Shared by threads: what it keeps is the same whoever computes it."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self._anchors = anchors_of(schema)
        self._rules: dict[int, list[tuple[Any, _Rule, Any]]] = {}
        self._targets: dict[str, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Validator, (self.schema,)

    def is_valid(self, value: Any, steps: Steps | None = None) -> bool:
        """Return whether nothing is wrong. Raises `OutOfSteps`."""
        return not self.complaints(value, SchemaRun(steps or Steps(UNBOUNDED)))

    def complaints(self, value: Any, run: SchemaRun) -> tuple[Complaint, ...]:
        """Return what is wrong, at most `ERRORS_MAX` things of it. Raises `OutOfSteps`, RecursionError."""
        return tuple(self.judge(self.schema, value, run))

    def judge(self, node: Any, value: Any, run: SchemaRun) -> _Wrong:
        steps = run.steps
        steps.spend()
        if node is True or node is False:
            return () if node else (Complaint("false", False, value),)
        kept = type(value) is dict or type(value) is list
        if kept and (known := run.known.get((id(node), id(value)))) is not None:
            return known[1]
        rules = self._rules.get(id(node))
        if rules is None:
            rules = [(*_RULES[key], _prepare(key, wanted)) for key, wanted in node.items() if key in _RULES]
            self._rules[id(node)] = rules
        found: list[Complaint] = []
        for kind, rule, wanted in rules:
            if isinstance(value, kind) and (wrong := rule(self, wanted, value, node, run)):
                found += wrong
        del found[ERRORS_MAX:]
        if kept:
            run.known[id(node), id(value)] = value, found
        return found

    def target(self, reference: str) -> Any:
        if reference not in self._targets:
            self._targets[reference] = resolve(self.schema, reference, self._anchors)
        return self._targets[reference]


_IS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": is_number,
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}


def _prepare(key: str, wanted: Any) -> Any:
    if key == "type":
        return wanted, [_IS[kind] for kind in ([wanted] if isinstance(wanted, str) else wanted)]
    if key == "enum":
        return wanted, frozenset(map(write_canonical, wanted))
    if key == "const":
        return wanted, frozenset((write_canonical(wanted),))
    return wanted


def _check_type(_v: Validator, wanted: Any, value: Any, _node: _Node, _run: SchemaRun) -> _Wrong:
    stated, kinds = wanted
    return () if any(is_kind(value) for is_kind in kinds) else (Complaint("type", stated, value),)


def _build_choice(key: str) -> _Rule:
    def rule(_v: Validator, wanted: Any, value: Any, _node: _Node, run: SchemaRun) -> _Wrong:
        stated, words = wanted
        return () if words and write_canonical(value, run.steps) in words else (Complaint(key, stated, value),)

    return rule


def _check_pattern(_v: Validator, wanted: str, value: Any, _node: _Node, run: SchemaRun) -> _Wrong:
    pattern = translate(wanted, run.steps.owner)
    run.steps.spend(pattern.steps(value))
    return () if pattern.allows(value) else (Complaint("pattern", wanted, value),)


def _check_format(_v: Validator, wanted: str, value: Any, _node: _Node, run: SchemaRun) -> _Wrong:
    if wanted not in FORMATS.checkers:
        return ()
    run.steps.spend(1 + len(value) // _CHARS_A_STEP)
    return () if FORMATS.conforms(value, wanted) else (Complaint("format", wanted, value),)


def _build_limit(key: str, wrong: Callable[[Any, Any], bool]) -> _Rule:
    def rule(_v: Validator, wanted: Any, value: Any, _node: _Node, _run: SchemaRun) -> _Wrong:
        if isinstance(value, bool) or not wrong(value if isinstance(value, (int, float)) else len(value), wanted):
            return ()
        return (Complaint(key, wanted, value),)

    return rule


def _is_no_multiple(value: Any, of: Any) -> bool:
    if isinstance(value, int) and isinstance(of, int):
        return bool(value % of)
    return bool(Fraction(repr(value)) % Fraction(repr(of)))


def _judge_parts(v: Validator, parts: Iterable[tuple[Any, Any, Any]], run: SchemaRun) -> list[Complaint]:
    """Judge members or items, each as its key, its schema and its value, until there is enough to complain of."""
    found: list[Complaint] = []
    for key, schema, part in parts:
        if wrong := v.judge(schema, part, run):
            found += prefix_paths(key, wrong, run)
            if len(found) >= ERRORS_MAX:
                break
    return found


def _check_required(_v: Validator, wanted: Any, value: Any, _node: _Node, _run: SchemaRun) -> _Wrong:
    missing = [key for key in wanted if key not in value]
    return (Complaint("required", wanted, value, keys=tuple(missing[:KEYS_MAX])),) if missing else ()


def _check_properties(v: Validator, wanted: Any, value: Any, _node: _Node, run: SchemaRun) -> _Wrong:
    keys = wanted if len(wanted) <= len(value) * 4 + 16 else [key for key in value if key in wanted]
    found: list[Complaint] = []
    for key in keys:  # not by `_judge_parts`: nearly every judgement goes through here
        if key in value and (wrong := v.judge(wanted[key], value[key], run)):
            found += prefix_paths(key, wrong, run)
            if len(found) >= ERRORS_MAX:
                break
    return found


def _check_pattern_properties(v: Validator, wanted: Any, value: Any, _node: _Node, run: SchemaRun) -> _Wrong:
    return _judge_parts(v, _list_matching(wanted, value, run), run)


def _list_matching(wanted: Any, value: dict[str, Any], run: SchemaRun) -> Iterator[tuple[str, Any, Any]]:
    for source, schema in wanted.items() if value else ():
        pattern = translate(source, run.steps.owner)
        for key, member in value.items():
            run.steps.spend(pattern.steps(key))
            if pattern.allows(key):
                yield key, schema, member


def _check_additional(v: Validator, wanted: Any, value: Any, node: _Node, run: SchemaRun) -> _Wrong:
    return _judge_left(v, "additionalProperties", wanted, value, _list_undeclared(node, value, run), run)


def _list_undeclared(node: _Node, keys: Iterable[str], run: SchemaRun) -> list[str]:
    declared = node.get("properties", {})
    left = [key for key in keys if key not in declared]
    for source in node.get("patternProperties", {}) if left else ():
        pattern = translate(source, run.steps.owner)
        run.steps.spend(sum(map(pattern.steps, left)))
        left = [key for key in left if not pattern.allows(key)]
    return left


def _judge_left(v: Validator, name: str, wanted: Any, value: Any, left: Sequence[Any], run: SchemaRun) -> _Wrong:
    if wanted is True or not left:
        return ()
    if wanted is False:
        keys = tuple(left[:KEYS_MAX]) if isinstance(value, dict) else (str(left[0]),)
        return (Complaint(name, wanted, value, keys=keys),)
    return _judge_parts(v, ((part, wanted, value[part]) for part in left), run)


def _check_property_names(v: Validator, wanted: Any, value: Any, _node: _Node, run: SchemaRun) -> _Wrong:
    wrong = [key for key in value if v.judge(wanted, key, run)]
    return (Complaint("propertyNames", wanted, value, keys=tuple(wrong[:KEYS_MAX])),) if wrong else ()


def _check_dependent_required(_v: Validator, wanted: Any, value: Any, _node: _Node, run: SchemaRun) -> _Wrong:
    found: list[Complaint] = []
    for key, others in wanted.items():
        run.steps.spend(1 + len(others) // 8)
        if key in value and (missing := tuple(other for other in others if other not in value)):
            found.append(Complaint("dependentRequired", {key: others}, value, keys=missing))
    return found


def _check_dependent_schemas(v: Validator, wanted: Any, value: Any, _node: _Node, run: SchemaRun) -> _Wrong:
    return [one for key, schema in wanted.items() if key in value for one in v.judge(schema, value, run)]


def _check_prefix_items(v: Validator, wanted: Any, value: Any, _node: _Node, run: SchemaRun) -> _Wrong:
    return _judge_parts(v, zip(range(len(value)), wanted, value, strict=False), run)


def _check_items(v: Validator, wanted: Any, value: Any, node: _Node, run: SchemaRun) -> _Wrong:
    return _judge_left(v, "items", wanted, value, range(len(node.get("prefixItems", ())), len(value)), run)


def _check_contains(v: Validator, wanted: Any, value: Any, node: _Node, run: SchemaRun) -> _Wrong:
    count = sum(not v.judge(wanted, item, run) for item in value)
    if count < node.get("minContains", 1):
        return (Complaint("contains", wanted, value),)
    return (Complaint("maxContains", node["maxContains"], value),) if count > node.get("maxContains", count) else ()


def _check_unique(_v: Validator, wanted: Any, value: Any, _node: _Node, run: SchemaRun) -> _Wrong:
    same = wanted and len({write_canonical(item, run.steps) for item in value}) < len(value)
    return (Complaint("uniqueItems", wanted, value),) if same else ()


def _check_ref(v: Validator, wanted: str, value: Any, _node: _Node, run: SchemaRun) -> _Wrong:
    return v.judge(v.target(wanted), value, run)


def _check_all_of(v: Validator, wanted: Any, value: Any, _node: _Node, run: SchemaRun) -> _Wrong:
    return [one for schema in wanted for one in v.judge(schema, value, run)]


def _build_either(key: str) -> _Rule:
    """Build the rule for `anyOf`, where the first form that fits is enough, or for `oneOf`."""

    def rule(v: Validator, wanted: Any, value: Any, _node: _Node, run: SchemaRun) -> _Wrong:
        context: list[Complaint] = []
        fits = 0
        for schema in wanted:
            wrong = v.judge(schema, value, run)
            context += wrong[: ERRORS_MAX - len(context)]
            fits += not wrong
            if fits and key == "anyOf":
                break
        return () if fits == 1 else (Complaint(key, wanted, value, context=() if fits else tuple(context)),)

    return rule


def _check_not(v: Validator, wanted: Any, value: Any, _node: _Node, run: SchemaRun) -> _Wrong:
    return () if v.judge(wanted, value, run) else (Complaint("not", wanted, value),)


def _check_if(v: Validator, wanted: Any, value: Any, node: _Node, run: SchemaRun) -> _Wrong:
    branch = "else" if v.judge(wanted, value, run) else "then"
    return v.judge(node[branch], value, run) if branch in node else ()


def _build_unevaluated(key: str) -> _Rule:
    """Build a rule for the members or the items that nothing in the node speaks of, the rule's keyword aside."""

    def rule(v: Validator, wanted: Any, value: Any, node: _Node, run: SchemaRun) -> _Wrong:
        everything = list(value if isinstance(value, dict) else range(len(value)))
        left = everything if wanted is True else _list_unevaluated(v, node, value, everything, run, own=True)
        return _judge_left(v, key, wanted, value, left, run)

    return rule


def _list_unevaluated(v: Validator, node: Any, value: Any, left: list[Any], run: SchemaRun, *, own: bool) -> list[Any]:
    """List those `left` that nothing in a node speaks of. `own`: it is the node whose `unevaluated…` asks."""
    run.steps.spend(1 + len(left) // 8)
    if not isinstance(node, Mapping) or not left:
        return left
    has_keys = isinstance(value, dict)
    of_rest, unevaluated = _OF_REST[has_keys]
    if of_rest in node or (unevaluated in node and not own):
        return []
    left = _list_undeclared(node, left, run) if has_keys else _list_unreached(v, node, value, left, run)
    for part in _list_satisfied(v, node, value, run):
        left = _list_unevaluated(v, part, value, left, run, own=False)
    return left


def _list_unreached(v: Validator, node: _Node, value: Any, left: list[int], run: SchemaRun) -> list[int]:
    begin = len(node.get("prefixItems", ()))
    left = [i for i in left if i >= begin]
    return [i for i in left if v.judge(node["contains"], value[i], run)] if "contains" in node else left


def _list_satisfied(v: Validator, node: _Node, value: Any, run: SchemaRun) -> Iterator[Any]:
    parts = [part for key in ("allOf", "anyOf", "oneOf") for part in node.get(key, ())]
    parts += [v.target(node[key]) for key in ("$ref", "$dynamicRef") if key in node]
    if isinstance(value, dict):
        parts += [part for key, part in node.get("dependentSchemas", {}).items() if key in value]
    if "if" in node:
        good = not v.judge(node["if"], value, run)
        parts += [node[key] for key in (("if", "then") if good else ("else",)) if key in node]
    yield from (part for part in parts if not v.judge(part, value, run))


_OF_REST = {True: ("additionalProperties", "unevaluatedProperties"), False: ("items", "unevaluatedItems")}
_LIMITS: dict[str, tuple[Any, Callable[[Any, Any], bool]]] = {
    "multipleOf": ((int, float), _is_no_multiple),
    "minimum": ((int, float), operator.lt),
    "maximum": ((int, float), operator.gt),
    "exclusiveMinimum": ((int, float), operator.le),
    "exclusiveMaximum": ((int, float), operator.ge),
    "minLength": (str, operator.lt),
    "maxLength": (str, operator.gt),
    "minItems": (list, operator.lt),
    "maxItems": (list, operator.gt),
    "minProperties": (dict, operator.lt),
    "maxProperties": (dict, operator.gt),
}
_RULES: dict[str, tuple[Any, _Rule]] = {
    "type": (object, _check_type),
    "enum": (object, _build_choice("enum")),
    "const": (object, _build_choice("const")),
    "pattern": (str, _check_pattern),
    "format": (str, _check_format),
    **{key: (kind, _build_limit(key, wrong)) for key, (kind, wrong) in _LIMITS.items()},
    "required": (dict, _check_required),
    "properties": (dict, _check_properties),
    "patternProperties": (dict, _check_pattern_properties),
    "additionalProperties": (dict, _check_additional),
    "unevaluatedProperties": (dict, _build_unevaluated("unevaluatedProperties")),
    "propertyNames": (dict, _check_property_names),
    "dependentRequired": (dict, _check_dependent_required),
    "dependentSchemas": (dict, _check_dependent_schemas),
    "prefixItems": (list, _check_prefix_items),
    "items": (list, _check_items),
    "unevaluatedItems": (list, _build_unevaluated("unevaluatedItems")),
    "contains": (list, _check_contains),
    "uniqueItems": (list, _check_unique),
    "$ref": (object, _check_ref),
    "$dynamicRef": (object, _check_ref),
    "allOf": (object, _check_all_of),
    "anyOf": (object, _build_either("anyOf")),
    "oneOf": (object, _build_either("oneOf")),
    "not": (object, _check_not),
    "if": (object, _check_if),
}
