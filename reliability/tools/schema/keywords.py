"""The keywords of draft 2020-12, one rule each: what a keyword has against a value.

A rule takes (validator, what stands behind the keyword, value, the node that it stands in, run) and gives back
complaints; values of a kind that the keyword doesn't speak of are fine. Which members and items count as evaluated is
for `evaluated.py`.

Numbers are compared as they are written: 0.3 is a multiple of 0.1. Values are compared as JSON: 1 is 1.0 and not true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from reliability.tools.schema.equality import write_canonical
from reliability.tools.schema.evaluated import find_unevaluated_items, find_unevaluated_keys
from reliability.tools.schema.patterns import FORMATS, translate
from reliability.tools.schema.validator import ERRORS_MAX, KEYS_MAX, Complaint, Rule, Run, Validator, prefix_paths

__all__ = ["RULES", "prepare"]

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
        return wanted, None if len(wanted) == 0 else frozenset(map(write_canonical, wanted))
    if key == "const":
        return wanted, frozenset((write_canonical(wanted),))
    return wanted


# --- any value ------------------------------------------------------------------------------------------------


def _check_type(_v: Validator, wanted: Any, value: Any, _node: Node, _run: Run) -> Wrong:
    stated, kinds = wanted
    return () if any(is_kind(value) for is_kind in kinds) else (Complaint("type", stated, value),)


def _check_enum(_v: Validator, wanted: Any, value: Any, _node: Node, run: Run) -> Wrong:
    stated, words = wanted
    return () if words and write_canonical(value, run.steps) in words else (Complaint("enum", stated, value),)


def _check_const(_v: Validator, wanted: Any, value: Any, _node: Node, run: Run) -> Wrong:
    stated, words = wanted
    return () if write_canonical(value, run.steps) in words else (Complaint("const", stated, value),)


# --- texts and numbers ----------------------------------------------------------------------------------------


def _check_pattern(_v: Validator, wanted: str, value: Any, _node: Node, run: Run) -> Wrong:
    if not isinstance(value, str):
        return ()
    pattern = translate(wanted)
    run.steps.spend(pattern.steps(value))
    return () if pattern.allows(value) else (Complaint("pattern", wanted, value),)


def _check_format(_v: Validator, wanted: str, value: Any, _node: Node, run: Run) -> Wrong:
    if not isinstance(value, str) or wanted not in FORMATS.checkers:
        return ()
    run.steps.spend(1 + len(value) // CHARS_A_STEP)
    return () if FORMATS.conforms(value, wanted) else (Complaint("format", wanted, value),)


def _build_comparison(key: str, kind: Callable[[Any], bool], wrong: Callable[[Any, Any], bool]) -> Rule:
    """Build a rule that holds one number against another."""

    def rule(_v: Validator, wanted: Any, value: Any, _node: Node, _run: Run) -> Wrong:
        return (Complaint(key, wanted, value),) if kind(value) and wrong(value, wanted) else ()

    return rule


def _is_no_multiple(value: Any, of: Any) -> bool:
    if isinstance(value, int) and isinstance(of, int):
        return bool(value % of)
    return bool(Fraction(repr(value)) % Fraction(repr(of)))


# --- objects --------------------------------------------------------------------------------------------------


def _check_required(_v: Validator, wanted: Any, value: Any, _node: Node, _run: Run) -> Wrong:
    missing = [key for key in wanted if key not in value] if isinstance(value, dict) else []
    return (Complaint("required", wanted, value, keys=tuple(missing[:KEYS_MAX])),) if missing else ()


def _check_properties(v: Validator, wanted: Any, value: Any, _node: Node, run: Run) -> Wrong:
    if not isinstance(value, dict):
        return ()
    found: list[Complaint] = []
    keys = wanted if len(wanted) <= len(value) * 4 + 16 else [key for key in value if key in wanted]
    for key in keys:
        if key in value and (wrong := v.judge(wanted[key], value[key], run)):
            found += prefix_paths(key, wrong, run)
            if len(found) >= ERRORS_MAX:
                break
    return found


def _check_pattern_properties(v: Validator, wanted: Any, value: Any, _node: Node, run: Run) -> Wrong:
    found: list[Complaint] = []
    for source, schema in wanted.items() if isinstance(value, dict) else ():
        pattern = translate(source)
        for key, member in value.items():
            run.steps.spend(pattern.steps(key))
            if pattern.allows(key):
                found += prefix_paths(key, v.judge(schema, member, run), run)
        if len(found) >= ERRORS_MAX:
            break
    return found


def _check_additional_keys(v: Validator, wanted: Any, value: Any, node: Node, run: Run) -> Wrong:
    return _judge_others(v, "additionalProperties", wanted, value, _find_undeclared(value, node, run), run)


def _check_unevaluated_keys(v: Validator, wanted: Any, value: Any, node: Node, run: Run) -> Wrong:
    keys = find_unevaluated_keys(v, node, value, run) if isinstance(value, dict) else []
    return _judge_others(v, "unevaluatedProperties", wanted, value, keys, run)


def _find_undeclared(value: Any, node: Node, run: Run) -> list[str]:
    """Find the members that neither `properties` nor `patternProperties` speaks of."""
    if not isinstance(value, dict):
        return []
    declared = node.get("properties", {})
    keys = [key for key in value if key not in declared]
    for source in node.get("patternProperties", {}) if keys else ():
        pattern = translate(source)
        run.steps.spend(sum(map(pattern.steps, keys)))
        keys = [key for key in keys if not pattern.allows(key)]
    return keys


def _judge_others(v: Validator, name: str, wanted: Any, value: Any, keys: list[str], run: Run) -> Wrong:
    if wanted is True or not keys:
        return ()
    if wanted is False:
        return (Complaint(name, wanted, value, keys=tuple(keys[:KEYS_MAX])),)
    found: list[Complaint] = []
    for key in keys:
        found += prefix_paths(key, v.judge(wanted, value[key], run), run)
        if len(found) >= ERRORS_MAX:
            break
    return found


def _check_property_names(v: Validator, wanted: Any, value: Any, _node: Node, run: Run) -> Wrong:
    keys = value if isinstance(value, dict) else ()
    wrong = [key for key in keys if v.judge(wanted, key, run)]
    return (Complaint("propertyNames", wanted, value, keys=tuple(wrong[:KEYS_MAX])),) if wrong else ()


def _check_dependent_required(_v: Validator, wanted: Any, value: Any, _node: Node, run: Run) -> Wrong:
    found: list[Complaint] = []
    for key, others in wanted.items() if isinstance(value, dict) else ():
        run.steps.spend(1 + len(others) // 8)
        if key in value and (missing := tuple(other for other in others if other not in value)):
            found.append(Complaint("dependentRequired", {key: others}, value, keys=missing))
    return found


def _check_dependent_schemas(v: Validator, wanted: Any, value: Any, _node: Node, run: Run) -> Wrong:
    found: list[Complaint] = []
    for key, schema in wanted.items() if isinstance(value, dict) else ():
        if key in value:
            found += v.judge(schema, value, run)
    return found


# --- arrays ---------------------------------------------------------------------------------------------------


def _check_prefix_items(v: Validator, wanted: Any, value: Any, _node: Node, run: Run) -> Wrong:
    found: list[Complaint] = []
    for i, (schema, item) in enumerate(zip(wanted, value, strict=False)) if isinstance(value, list) else ():
        found += prefix_paths(i, v.judge(schema, item, run), run)
    return found


def _check_items(v: Validator, wanted: Any, value: Any, node: Node, run: Run) -> Wrong:
    begin = len(node.get("prefixItems", ()))
    if not isinstance(value, list) or len(value) <= begin:
        return ()
    if wanted is False:
        return (Complaint("items", wanted, value, keys=(str(begin),)),)
    found: list[Complaint] = []
    for i in range(begin, len(value)):
        if wrong := v.judge(wanted, value[i], run):
            found += prefix_paths(i, wrong, run)
            if len(found) >= ERRORS_MAX:
                break
    return found


def _check_unevaluated_items(v: Validator, wanted: Any, value: Any, node: Node, run: Run) -> Wrong:
    if wanted is True or not isinstance(value, list):
        return ()
    found: list[Complaint] = []
    for i in find_unevaluated_items(v, node, value, run):
        if wanted is False:
            return (Complaint("unevaluatedItems", wanted, value, keys=(str(i),)),)
        found += prefix_paths(i, v.judge(wanted, value[i], run), run)
        if len(found) >= ERRORS_MAX:
            break
    return found


def _check_contains(v: Validator, wanted: Any, value: Any, node: Node, run: Run) -> Wrong:
    if not isinstance(value, list):
        return ()
    count = sum(not v.judge(wanted, item, run) for item in value)
    if count < node.get("minContains", 1):
        return (Complaint("contains", wanted, value),)
    return (Complaint("maxContains", node["maxContains"], value),) if count > node.get("maxContains", count) else ()


def _check_unique(_v: Validator, wanted: Any, value: Any, _node: Node, run: Run) -> Wrong:
    if not wanted or not isinstance(value, list):
        return ()
    same = len({write_canonical(item, run.steps) for item in value}) < len(value)
    return (Complaint("uniqueItems", wanted, value),) if same else ()


# --- schemas for the same value -------------------------------------------------------------------------------


def _check_ref(v: Validator, wanted: str, value: Any, _node: Node, run: Run) -> Wrong:
    return v.judge(v.target(wanted), value, run)


def _check_all_of(v: Validator, wanted: Any, value: Any, _node: Node, run: Run) -> Wrong:
    return [one for schema in wanted for one in v.judge(schema, value, run)]


def _check_any_of(v: Validator, wanted: Any, value: Any, _node: Node, run: Run) -> Wrong:
    context: list[Complaint] = []
    for schema in wanted:
        wrong = v.judge(schema, value, run)
        if not wrong:
            return ()
        context += wrong[: ERRORS_MAX - len(context)]
    return (Complaint("anyOf", wanted, value, context=tuple(context)),)


def _check_one_of(v: Validator, wanted: Any, value: Any, _node: Node, run: Run) -> Wrong:
    context: list[Complaint] = []
    fits = 0
    for schema in wanted:
        wrong = v.judge(schema, value, run)
        context += wrong[: ERRORS_MAX - len(context)]
        fits += not wrong
    if fits == 1:
        return ()
    return (Complaint("oneOf", wanted, value, context=() if fits else tuple(context)),)


def _check_not(v: Validator, wanted: Any, value: Any, _node: Node, run: Run) -> Wrong:
    return () if v.judge(wanted, value, run) else (Complaint("not", wanted, value),)


def _check_if(v: Validator, wanted: Any, value: Any, node: Node, run: Run) -> Wrong:
    branch = "else" if v.judge(wanted, value, run) else "then"
    return v.judge(node[branch], value, run) if branch in node else ()


def _build_kind_test(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


RULES: dict[str, Rule] = {
    "type": _check_type,
    "enum": _check_enum,
    "const": _check_const,
    "pattern": _check_pattern,
    "format": _check_format,
    "multipleOf": _build_comparison("multipleOf", _is_number, _is_no_multiple),
    "minimum": _build_comparison("minimum", _is_number, lambda value, limit: value < limit),
    "maximum": _build_comparison("maximum", _is_number, lambda value, limit: value > limit),
    "exclusiveMinimum": _build_comparison("exclusiveMinimum", _is_number, lambda value, limit: value <= limit),
    "exclusiveMaximum": _build_comparison("exclusiveMaximum", _is_number, lambda value, limit: value >= limit),
    "minLength": _build_comparison("minLength", _build_kind_test(str), lambda value, limit: len(value) < limit),
    "maxLength": _build_comparison("maxLength", _build_kind_test(str), lambda value, limit: len(value) > limit),
    "minItems": _build_comparison("minItems", _build_kind_test(list), lambda value, limit: len(value) < limit),
    "maxItems": _build_comparison("maxItems", _build_kind_test(list), lambda value, limit: len(value) > limit),
    "minProperties": _build_comparison(
        "minProperties", _build_kind_test(dict), lambda value, limit: len(value) < limit
    ),
    "maxProperties": _build_comparison(
        "maxProperties", _build_kind_test(dict), lambda value, limit: len(value) > limit
    ),
    "required": _check_required,
    "properties": _check_properties,
    "patternProperties": _check_pattern_properties,
    "additionalProperties": _check_additional_keys,
    "unevaluatedProperties": _check_unevaluated_keys,
    "propertyNames": _check_property_names,
    "dependentRequired": _check_dependent_required,
    "dependentSchemas": _check_dependent_schemas,
    "prefixItems": _check_prefix_items,
    "items": _check_items,
    "unevaluatedItems": _check_unevaluated_items,
    "contains": _check_contains,
    "uniqueItems": _check_unique,
    "$ref": _check_ref,
    "$dynamicRef": _check_ref,
    "allOf": _check_all_of,
    "anyOf": _check_any_of,
    "oneOf": _check_one_of,
    "not": _check_not,
    "if": _check_if,
}
