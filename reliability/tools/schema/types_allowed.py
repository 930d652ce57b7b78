"""Which types a schema allows at its own place: the question behind every reading and every repair.

A text is read as a number, and a string decoded as an object, only where the schema allows no string
there. So the answer must never leave a type out: whatever can't be told is answered with None, anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reliability.tools.schema.references import resolve

__all__ = ["find_allowed_types", "property_schema"]

STEPS_MAX = 16

_ALL = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_OF: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}


def find_allowed_types(schema: Any, root: Any, steps: int = STEPS_MAX) -> frozenset[str] | None:
    """Find the types that an instance of this schema may have; None where any may be."""
    if not isinstance(schema, Mapping) or steps == 0:
        return None
    found = _find_own_types(schema)
    if isinstance(schema.get("$ref"), str):
        found = _intersect(found, _follow_reference(schema["$ref"], root, steps))
    for part in schema.get("allOf", ()):
        found = _intersect(found, find_allowed_types(part, root, steps - 1))
    for either in ("anyOf", "oneOf"):
        if schema.get(either):
            parts = [find_allowed_types(part, root, steps - 1) for part in schema[either]]
            found = _intersect(found, frozenset[str]().union(*(_ALL if part is None else part for part in parts)))
    return None if found == _ALL else found


def property_schema(schema: Any, root: Any, key: str, steps: int = STEPS_MAX) -> Any:
    """Return what a schema says of one property, through references; None where it says nothing."""
    if not isinstance(schema, Mapping) or steps == 0:
        return None
    schemas = [schema["properties"][key]] if key in schema.get("properties", {}) else []
    parts = list(schema.get("allOf", ())) + list(schema.get("anyOf", ())) + list(schema.get("oneOf", ()))
    if isinstance(schema.get("$ref"), str) and schema["$ref"].startswith("#/"):
        parts.append(resolve(root, schema["$ref"], {}))
    schemas += [inner for part in parts if (inner := property_schema(part, root, key, steps - 1)) is not None]
    if not schemas:
        more = schema.get("additionalProperties")
        return more if isinstance(more, Mapping) else None
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _find_own_types(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """Find the types that `type`, `enum` and `const` leave."""
    kinds = schema.get("type")
    found = None if kinds is None else frozenset([kinds] if isinstance(kinds, str) else kinds)
    if "enum" in schema:
        found = _intersect(found, frozenset(_OF.get(type(value), "string") for value in schema["enum"]))
    if "const" in schema:
        found = _intersect(found, frozenset({_OF.get(type(schema["const"]), "string")}))
    return found


def _follow_reference(reference: str, root: Any, steps: int) -> frozenset[str] | None:
    return (
        find_allowed_types(resolve(root, reference, {}), root, steps - 1)
        if reference.startswith("#") and reference[1:2] in ("", "/")
        else None
    )


def _intersect(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """Return the types that two schemas allow together; an integer is a number."""
    if one is None or other is None:
        return other if one is None else one
    wide_one, wide_other = (kinds | {"integer"} if "number" in kinds else kinds for kinds in (one, other))
    return wide_one & wide_other
