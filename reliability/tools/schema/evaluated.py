"""Which members and items a schema speaks of: what `unevaluated…` asks.

A node speaks for what its own keywords cover, and for what those of its parts cover that judge the same value and are
satisfied by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from reliability.tools.schema.patterns import translate

if TYPE_CHECKING:
    from reliability.tools.schema.validator import Run, Validator

__all__ = ["find_unevaluated_items", "find_unevaluated_keys"]

Node = Mapping[str, Any]


def find_unevaluated_keys(v: Validator, node: Node, value: dict[str, Any], run: Run) -> list[str]:
    """Find the members that nothing in the node speaks of, its own `unevaluatedProperties` aside."""
    left = dict.fromkeys(value)
    _take_keys(v, node, value, left, run, own=True)
    return list(left)


def _take_keys(v: Validator, node: Any, value: dict[str, Any], left: dict[str, None], run: Run, *, own: bool) -> None:
    run.steps.spend(1 + len(left) // 8)
    if not isinstance(node, Mapping) or not left:
        return
    if "additionalProperties" in node or ("unevaluatedProperties" in node and not own):
        left.clear()
        return
    for key in [key for key in left if key in node.get("properties", {})]:
        del left[key]
    for source in node.get("patternProperties", {}):
        pattern = translate(source)
        run.steps.spend(sum(map(pattern.steps, left)))
        for key in [key for key in left if pattern.allows(key)]:
            del left[key]
    for part in _list_satisfied(v, node, value, run):
        _take_keys(v, part, value, left, run, own=False)


def find_unevaluated_items(v: Validator, node: Node, value: list[Any], run: Run) -> list[int]:
    """Find the items that nothing in the node speaks of, its own `unevaluatedItems` aside."""
    left = dict.fromkeys(range(len(value)))
    _take_items(v, node, value, left, run, own=True)
    return list(left)


def _take_items(v: Validator, node: Any, value: list[Any], left: dict[int, None], run: Run, *, own: bool) -> None:
    run.steps.spend(1 + len(left) // 8)
    if not isinstance(node, Mapping) or not left:
        return
    if "items" in node or ("unevaluatedItems" in node and not own):
        left.clear()
        return
    begin = len(node.get("prefixItems", ()))
    for i in [i for i in left if i < begin]:
        del left[i]
    if "contains" in node:
        for i in [i for i in left if not v.judge(node["contains"], value[i], run)]:
            del left[i]
    for part in _list_satisfied(v, node, value, run):
        _take_items(v, part, value, left, run, own=False)


def _list_satisfied(v: Validator, node: Node, value: Any, run: Run) -> Iterator[Any]:
    """Yield the parts that judge the same value, where it satisfies them."""
    parts = [part for key in ("allOf", "anyOf", "oneOf") for part in node.get(key, ())]
    parts += [v.target(node[key]) for key in ("$ref", "$dynamicRef") if key in node]
    if isinstance(value, dict):
        parts += [part for key, part in node.get("dependentSchemas", {}).items() if key in value]
    if "if" in node:
        good = not v.judge(node["if"], value, run)
        parts += [node[key] for key in (("if", "then") if good else ("else",)) if key in node]
    yield from (part for part in parts if not v.judge(part, value, run))
