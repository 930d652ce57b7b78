"""Relax a JSON schema to what llguidance can compile, strictest first, and bound what it is given. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from reliability.tools.schema.references import anchors_of, resolve

WHITE_MAX = 8
_GUIDANCE = {"whitespace_flexible": True, "whitespace_pattern": rf"[\x20\x0A\x0D\x09]{{1,{WHITE_MAX}}}"}
_LENIENT = {**_GUIDANCE, "lenient": True, "coerce_one_of": True}
EXACT = "exact"

# An object that says nothing else than these can be closed without making it unsatisfiable.
_PLAIN = frozenset({"type", "properties", "required", "title", "description", "$comment", "default", "examples"})
_PLAIN_ROOT = _PLAIN | {"$defs", "definitions"}
_OUTLINE = ("type", "required", "enum", "const", "minItems", "maxItems")

_NODES_MAX = 2_000  # schemas in one schema; `_WORDS_A_NODE` members of an enum count as one
_WORDS_A_NODE = 20
_MULTIPLE_A_NODE = 5  # of a `multipleOf`: one of 9,973 compiles in 0.04 s, of 86,400 in 0.5 s, of 999,983 in 71 s
_PATTERNS_MAX = 8  # that must hold for one string together
_MULTIPLE_PATTERNS = 5  # as so many counts a `multipleOf`: two together are one of their product
_VISITS_MAX = 20_000


def narrow(schema: Mapping[str, Any], *, arguments: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (form, schema with llguidance's options), strictest first. `arguments`: of a tool, so an object."""
    root = _as_arguments(schema) if arguments else dict(schema)
    closed = _close_objects(root, root=True)
    yield EXACT, {**closed, "x-guidance": _GUIDANCE}
    yield "lenient", {**closed, "x-guidance": _LENIENT}
    yield "outline", {**_build_outline(root), "x-guidance": _LENIENT}
    yield "any", {"type": "object", "x-guidance": _LENIENT}


def _as_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Make the schema one of arguments, which are an object; one that declares nothing takes nothing."""
    root = {**schema, "type": "object"}
    if root.keys() <= _PLAIN:
        root.setdefault("properties", {})
    return root


def _close_objects(node: Any, *, root: bool = False) -> Any:
    if not isinstance(node, Mapping):
        return node
    new = dict(node)
    if isinstance(new.get("properties"), Mapping):
        new["properties"] = {key: _close_objects(value) for key, value in new["properties"].items()}
        known = node.keys() <= (_PLAIN_ROOT if root else _PLAIN)
        if known and set(new.get("required", ())) <= new["properties"].keys():
            new["additionalProperties"] = False
    if isinstance(new.get("items"), Mapping):
        new["items"] = _close_objects(new["items"])
    return new


def _build_outline(node: Any) -> Any:
    """Return what of a schema every grammar can hold."""
    if not isinstance(node, Mapping):
        return {}
    new = {key: node[key] for key in _OUTLINE if key in node}
    if isinstance(node.get("properties"), Mapping):
        new["properties"] = {key: _build_outline(value) for key, value in node["properties"].items()}
    if isinstance(node.get("items"), Mapping):
        new["items"] = _build_outline(node["items"])
    return new


def find_excess(schema: Mapping[str, Any]) -> str:
    """Explain why a schema is not given to llguidance; empty where it may be."""
    if nodes_of(schema) > _NODES_MAX:
        return f"it has more than {_NODES_MAX} parts"
    anchors = anchors_of(schema)
    visits = [_VISITS_MAX]
    if any(_count_patterns(node, schema, anchors, visits) > _PATTERNS_MAX for node in _list_nodes(schema)):
        return f"more than {_PATTERNS_MAX} patterns, or one multipleOf, must hold together"
    return ""


def nodes_of(schema: Any) -> int:
    """Count the nodes of a schema."""
    return sum(1 + len(node.get("enum", ())) // _WORDS_A_NODE + _count_multiple(node) for node in _list_nodes(schema))


def _count_multiple(node: Mapping[str, Any]) -> int:
    """Count what a `multipleOf` takes: a state for each remainder of its digits."""
    of = node.get("multipleOf")
    return Fraction(repr(of)).numerator // _MULTIPLE_A_NODE if type(of) in (int, float) else 0


def _list_nodes(schema: Any) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            found.append(node)
            stack += [value for key, value in node.items() if key not in ("enum", "const", "default", "examples")]
        elif isinstance(node, list):
            stack += node
    return found


def _count_patterns(node: Any, root: Any, anchors: Mapping[str, Any], visits: list[int]) -> int:
    """Count the most patterns that one string or number must meet in this node; beyond `visits`, too many."""
    visits[0] -= 1
    if visits[0] < 0:
        return _PATTERNS_MAX + 1
    if not isinstance(node, Mapping):
        return 0
    count = int("pattern" in node or "format" in node) + _MULTIPLE_PATTERNS * ("multipleOf" in node)
    parts = list(node.get("allOf") or ())
    if isinstance(node.get("$ref"), str):
        parts.append(resolve(root, node["$ref"], anchors))
    for either in ("anyOf", "oneOf"):
        some = node.get(either) or ()
        count += max((_count_patterns(part, root, anchors, visits) for part in some), default=0)
    return count + sum(_count_patterns(part, root, anchors, visits) for part in parts)
