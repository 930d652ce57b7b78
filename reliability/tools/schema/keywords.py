"""The keywords of draft 2020-12, one rule each: what a keyword has against a value.

A rule takes (validator, what stands behind the keyword, value, the node that it stands in, run) and gives back
complaints; `RULES` says for which types of values. Numbers are compared as they are written: 0.3 is a multiple of 0.1.
Values are compared as JSON: 1 is 1.0 and not true.

`unevaluated…` asks which members and items a node speaks of: those that its own keywords cover, and those that are
covered by its parts which judge the same value and are satisfied by it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from reliability.tools.schema.complaint import (
    ERRORS_MAX,
    KEYS_MAX,
    Complaint,
    Judge,
    Rule,
    SchemaRun,
    prefix_paths,
    write_canonical,
)
from reliability.tools.schema.patterns import FORMATS, translate

CHARS_A_STEP = 20  # of a text whose format is checked
Wrong = Sequence[Complaint]
Node = Mapping[str, Any]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_IS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": _is_number,
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}


def prepare(key: str, wanted: Any) -> Any:
    """Prepare what a rule wants to know of its keyword, worked out once."""
    if key == "type":
        return wanted, [_IS[kind] for kind in ([wanted] if isinstance(wanted, str) else wanted)]
    if key == "enum":
        return wanted, frozenset(map(write_canonical, wanted))
    if key == "const":
        return wanted, frozenset((write_canonical(wanted),))
    return wanted


# --- values, texts and numbers --------------------------------------------------------------------------------


def _check_type(_v: Judge, wanted: Any, value: Any, _node: Node, _run: SchemaRun) -> Wrong:
    stated, kinds = wanted
    return () if any(is_kind(value) for is_kind in kinds) else (Complaint("type", stated, value),)


def _build_choice(key: str) -> Rule:
    """Build a rule that looks a value up among the words of its keyword."""

    def rule(_v: Judge, wanted: Any, value: Any, _node: Node, run: SchemaRun) -> Wrong:
        stated, words = wanted
        return () if words and write_canonical(value, run.steps) in words else (Complaint(key, stated, value),)

    return rule


def _check_pattern(_v: Judge, wanted: str, value: Any, _node: Node, run: SchemaRun) -> Wrong:
    pattern = translate(wanted)
    run.steps.spend(pattern.steps(value))
    return () if pattern.allows(value) else (Complaint("pattern", wanted, value),)


def _check_format(_v: Judge, wanted: str, value: Any, _node: Node, run: SchemaRun) -> Wrong:
    if wanted not in FORMATS.checkers:
        return ()
    run.steps.spend(1 + len(value) // CHARS_A_STEP)
    return () if FORMATS.conforms(value, wanted) else (Complaint("format", wanted, value),)


def _build_limit(key: str, wrong: Callable[[Any, Any], bool]) -> Rule:
    """Build a rule that holds a number, or the length of anything else, against a limit."""

    def rule(_v: Judge, wanted: Any, value: Any, _node: Node, _run: SchemaRun) -> Wrong:
        if isinstance(value, bool) or not wrong(value if isinstance(value, (int, float)) else len(value), wanted):
            return ()
        return (Complaint(key, wanted, value),)

    return rule


def _is_no_multiple(value: Any, of: Any) -> bool:
    if isinstance(value, int) and isinstance(of, int):
        return bool(value % of)
    return bool(Fraction(repr(value)) % Fraction(repr(of)))


# --- objects and arrays ---------------------------------------------------------------------------------------


def _judge_parts(v: Judge, parts: Iterable[tuple[Any, Any, Any]], run: SchemaRun) -> list[Complaint]:
    """Judge members or items, each as its key, its schema and its value, until there is enough to complain of."""
    found: list[Complaint] = []
    for key, schema, part in parts:
        if wrong := v.judge(schema, part, run):
            found += prefix_paths(key, wrong, run)
            if len(found) >= ERRORS_MAX:
                break
    return found


def _check_required(_v: Judge, wanted: Any, value: Any, _node: Node, _run: SchemaRun) -> Wrong:
    missing = [key for key in wanted if key not in value]
    return (Complaint("required", wanted, value, keys=tuple(missing[:KEYS_MAX])),) if missing else ()


def _check_properties(v: Judge, wanted: Any, value: Any, _node: Node, run: SchemaRun) -> Wrong:
    keys = wanted if len(wanted) <= len(value) * 4 + 16 else [key for key in value if key in wanted]
    found: list[Complaint] = []
    for key in keys:  # not by `_judge_parts`: nearly every judgement goes through here
        if key in value and (wrong := v.judge(wanted[key], value[key], run)):
            found += prefix_paths(key, wrong, run)
            if len(found) >= ERRORS_MAX:
                break
    return found


def _check_pattern_properties(v: Judge, wanted: Any, value: Any, _node: Node, run: SchemaRun) -> Wrong:
    return _judge_parts(v, _list_matching(wanted, value, run), run)


def _list_matching(wanted: Any, value: dict[str, Any], run: SchemaRun) -> Iterator[tuple[str, Any, Any]]:
    """Yield each member whose name a pattern takes, with the pattern's schema."""
    for source, schema in wanted.items():
        pattern = translate(source)
        for key, member in value.items():
            run.steps.spend(pattern.steps(key))
            if pattern.allows(key):
                yield key, schema, member


def _check_additional_keys(v: Judge, wanted: Any, value: Any, node: Node, run: SchemaRun) -> Wrong:
    declared = node.get("properties", {})
    keys = [key for key in value if key not in declared]
    for source in node.get("patternProperties", {}) if keys else ():
        pattern = translate(source)
        run.steps.spend(sum(map(pattern.steps, keys)))
        keys = [key for key in keys if not pattern.allows(key)]
    return _judge_others(v, "additionalProperties", wanted, value, keys, run)


def _check_unevaluated_keys(v: Judge, wanted: Any, value: Any, node: Node, run: SchemaRun) -> Wrong:
    return _judge_others(v, "unevaluatedProperties", wanted, value, _find_unevaluated(v, node, value, run), run)


def _judge_others(v: Judge, name: str, wanted: Any, value: Any, keys: list[str], run: SchemaRun) -> Wrong:
    if wanted is True or not keys:
        return ()
    if wanted is False:
        return (Complaint(name, wanted, value, keys=tuple(keys[:KEYS_MAX])),)
    return _judge_parts(v, [(key, wanted, value[key]) for key in keys], run)


def _check_property_names(v: Judge, wanted: Any, value: Any, _node: Node, run: SchemaRun) -> Wrong:
    wrong = [key for key in value if v.judge(wanted, key, run)]
    return (Complaint("propertyNames", wanted, value, keys=tuple(wrong[:KEYS_MAX])),) if wrong else ()


def _check_dependent_required(_v: Judge, wanted: Any, value: Any, _node: Node, run: SchemaRun) -> Wrong:
    found: list[Complaint] = []
    for key, others in wanted.items():
        run.steps.spend(1 + len(others) // 8)
        if key in value and (missing := tuple(other for other in others if other not in value)):
            found.append(Complaint("dependentRequired", {key: others}, value, keys=missing))
    return found


def _check_dependent_schemas(v: Judge, wanted: Any, value: Any, _node: Node, run: SchemaRun) -> Wrong:
    return [one for key, schema in wanted.items() if key in value for one in v.judge(schema, value, run)]


def _check_prefix_items(v: Judge, wanted: Any, value: Any, _node: Node, run: SchemaRun) -> Wrong:
    return _judge_parts(v, zip(range(len(value)), wanted, value, strict=False), run)


def _check_items(v: Judge, wanted: Any, value: Any, node: Node, run: SchemaRun) -> Wrong:
    return _judge_rest(v, "items", wanted, value, range(len(node.get("prefixItems", ())), len(value)), run)


def _check_unevaluated_items(v: Judge, wanted: Any, value: Any, node: Node, run: SchemaRun) -> Wrong:
    places = _find_unevaluated(v, node, value, run) if wanted is not True else ()
    return _judge_rest(v, "unevaluatedItems", wanted, value, places, run)


def _judge_rest(v: Judge, name: str, wanted: Any, value: list[Any], places: Sequence[int], run: SchemaRun) -> Wrong:
    if wanted is False and places:
        return (Complaint(name, wanted, value, keys=(str(places[0]),)),)
    return _judge_parts(v, ((i, wanted, value[i]) for i in places), run)


def _check_contains(v: Judge, wanted: Any, value: Any, node: Node, run: SchemaRun) -> Wrong:
    count = sum(not v.judge(wanted, item, run) for item in value)
    if count < node.get("minContains", 1):
        return (Complaint("contains", wanted, value),)
    return (Complaint("maxContains", node["maxContains"], value),) if count > node.get("maxContains", count) else ()


def _check_unique(_v: Judge, wanted: Any, value: Any, _node: Node, run: SchemaRun) -> Wrong:
    same = wanted and len({write_canonical(item, run.steps) for item in value}) < len(value)
    return (Complaint("uniqueItems", wanted, value),) if same else ()


# --- schemas for the same value -------------------------------------------------------------------------------


def _check_ref(v: Judge, wanted: str, value: Any, _node: Node, run: SchemaRun) -> Wrong:
    return v.judge(v.target(wanted), value, run)


def _check_all_of(v: Judge, wanted: Any, value: Any, _node: Node, run: SchemaRun) -> Wrong:
    return [one for schema in wanted for one in v.judge(schema, value, run)]


def _check_any_of(v: Judge, wanted: Any, value: Any, _node: Node, run: SchemaRun) -> Wrong:
    context: list[Complaint] = []
    for schema in wanted:
        wrong = v.judge(schema, value, run)
        if not wrong:
            return ()
        context += wrong[: ERRORS_MAX - len(context)]
    return (Complaint("anyOf", wanted, value, context=tuple(context)),)


def _check_one_of(v: Judge, wanted: Any, value: Any, _node: Node, run: SchemaRun) -> Wrong:
    context: list[Complaint] = []
    fits = 0
    for schema in wanted:
        wrong = v.judge(schema, value, run)
        context += wrong[: ERRORS_MAX - len(context)]
        fits += not wrong
    return () if fits == 1 else (Complaint("oneOf", wanted, value, context=() if fits else tuple(context)),)


def _check_not(v: Judge, wanted: Any, value: Any, _node: Node, run: SchemaRun) -> Wrong:
    return () if v.judge(wanted, value, run) else (Complaint("not", wanted, value),)


def _check_if(v: Judge, wanted: Any, value: Any, node: Node, run: SchemaRun) -> Wrong:
    branch = "else" if v.judge(wanted, value, run) else "then"
    return v.judge(node[branch], value, run) if branch in node else ()


# --- what is evaluated ----------------------------------------------------------------------------------------


def _find_unevaluated(v: Judge, node: Node, value: Any, run: SchemaRun) -> list[Any]:
    """Find the members or the items that nothing in the node speaks of, its own `unevaluated…` aside."""
    left: dict[Any, None] = dict.fromkeys(value if isinstance(value, dict) else range(len(value)))
    _take_evaluated(v, node, value, left, run, own=True)
    return list(left)


def _take_evaluated(v: Judge, node: Any, value: Any, left: dict[Any, None], run: SchemaRun, *, own: bool) -> None:
    run.steps.spend(1 + len(left) // 8)
    if not isinstance(node, Mapping) or not left:
        return
    of_rest = ("additionalProperties", "unevaluatedProperties")
    of_rest = of_rest if isinstance(value, dict) else ("items", "unevaluatedItems")
    if of_rest[0] in node or (of_rest[1] in node and not own):
        left.clear()
        return
    take = _take_keys if isinstance(value, dict) else _take_items
    take(v, node, value, left, run)
    for part in _list_satisfied(v, node, value, run):
        _take_evaluated(v, part, value, left, run, own=False)


def _take_keys(_v: Judge, node: Node, _value: Any, left: dict[str, None], run: SchemaRun) -> None:
    for key in [key for key in left if key in node.get("properties", {})]:
        del left[key]
    for source in node.get("patternProperties", {}):
        pattern = translate(source)
        run.steps.spend(sum(map(pattern.steps, left)))
        for key in [key for key in left if pattern.allows(key)]:
            del left[key]


def _take_items(v: Judge, node: Node, value: Any, left: dict[int, None], run: SchemaRun) -> None:
    begin = len(node.get("prefixItems", ()))
    for i in [i for i in left if i < begin]:
        del left[i]
    if "contains" in node:
        for i in [i for i in left if not v.judge(node["contains"], value[i], run)]:
            del left[i]


def _list_satisfied(v: Judge, node: Node, value: Any, run: SchemaRun) -> Iterator[Any]:
    """Yield the parts that judge the same value, where it satisfies them."""
    parts = [part for key in ("allOf", "anyOf", "oneOf") for part in node.get(key, ())]
    parts += [v.target(node[key]) for key in ("$ref", "$dynamicRef") if key in node]
    if isinstance(value, dict):
        parts += [part for key, part in node.get("dependentSchemas", {}).items() if key in value]
    if "if" in node:
        good = not v.judge(node["if"], value, run)
        parts += [node[key] for key in (("if", "then") if good else ("else",)) if key in node]
    yield from (part for part in parts if not v.judge(part, value, run))


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
RULES: dict[str, tuple[Any, Rule]] = {
    "type": (object, _check_type),
    "enum": (object, _build_choice("enum")),
    "const": (object, _build_choice("const")),
    "pattern": (str, _check_pattern),
    "format": (str, _check_format),
    **{key: (kind, _build_limit(key, wrong)) for key, (kind, wrong) in _LIMITS.items()},
    "required": (dict, _check_required),
    "properties": (dict, _check_properties),
    "patternProperties": (dict, _check_pattern_properties),
    "additionalProperties": (dict, _check_additional_keys),
    "unevaluatedProperties": (dict, _check_unevaluated_keys),
    "propertyNames": (dict, _check_property_names),
    "dependentRequired": (dict, _check_dependent_required),
    "dependentSchemas": (dict, _check_dependent_schemas),
    "prefixItems": (list, _check_prefix_items),
    "items": (list, _check_items),
    "unevaluatedItems": (list, _check_unevaluated_items),
    "contains": (list, _check_contains),
    "uniqueItems": (list, _check_unique),
    "$ref": (object, _check_ref),
    "$dynamicRef": (object, _check_ref),
    "allOf": (object, _check_all_of),
    "anyOf": (object, _check_any_of),
    "oneOf": (object, _check_one_of),
    "not": (object, _check_not),
    "if": (object, _check_if),
}
