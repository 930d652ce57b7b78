"""A client's schema as a grammar can hold it: never looser than it has to be, never tighter than the client meant.

    exact      the schema itself, its plain objects closed     what is written satisfies the schema
    lenient    the same, without what llguidance can't hold     checked again behind the model
    outline    types, names and enums only                      checked again behind the model
    any        any object                                       checked again behind the model

`narrow` gives them in this order, and whoever compiles takes the first that compiles. Every form
but `exact` allows texts that the schema forbids; where nothing checks behind the model, `exact` is
the only one to take.

Closing an object (no keys beyond the declared ones) is stricter than JSON Schema's default and takes no valid answer
out of reach that was declared; it is done because a weak model that may invent keys does so until it is cut off. It is
done only where nothing else could speak of further keys.

White space is bounded: a model that may write as much as it likes sometimes writes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["EXACT", "GUIDANCE", "WHITE_MAX", "narrow"]

WHITE_MAX = 8
GUIDANCE = {"whitespace_flexible": True, "whitespace_pattern": rf"[\x20\x0A\x0D\x09]{{1,{WHITE_MAX}}}"}
_LENIENT = {**GUIDANCE, "lenient": True, "coerce_one_of": True}
EXACT = "exact"

# An object that says nothing else than these can be closed without making it unsatisfiable.
_PLAIN = frozenset({"type", "properties", "required", "title", "description", "$comment", "default", "examples"})
_PLAIN_ROOT = _PLAIN | {"$defs", "definitions"}
_OUTLINE = ("type", "required", "enum", "const", "minItems", "maxItems")


def narrow(schema: Mapping[str, Any], *, arguments: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give (form, schema with llguidance's options in it), strictest first.

    `arguments`: of a tool, so always an object.
    """
    root = _as_arguments(schema) if arguments else dict(schema)
    closed = _close_objects(root, root=True)
    yield EXACT, {**closed, "x-guidance": GUIDANCE}
    yield "lenient", {**closed, "x-guidance": _LENIENT}
    yield "outline", {**_build_outline(root), "x-guidance": _LENIENT}
    yield "any", {"type": "object", "x-guidance": _LENIENT}


def _as_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Make the schema one of arguments, which are an object, whatever it forgets to say.

    One that declares nothing takes nothing.
    """
    root = {**schema, "type": "object"}
    if root.keys() <= _PLAIN:
        root.setdefault("properties", {})
    return root


def _close_objects(node: Any, *, root: bool = False) -> Any:
    """Return the schema with its plain objects closed, down through properties and items."""
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
