"""The schema of schemas, draft 2020-12, as one look at each keyword of a node.

`wrong_keyword(node)` sees a node whose parts have been seen before, and answers with the first keyword that can't stand
as it does. It says what the dialect's own meta-schema says, a thousand times faster than a validator that walks it; a
test holds the two against each other. Keywords that nobody knows may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["TYPES", "wrong_keyword"]

TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_ANCHOR = re.compile(r"[A-Za-z_][-A-Za-z0-9._]*")

Check = tuple[Callable[[Any], bool], str]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and (isinstance(value, int) or value.is_integer())


def _is_schema(value: Any) -> bool:
    return isinstance(value, (Mapping, bool))


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _is_type(value: Any) -> bool:
    if isinstance(value, str):
        return value in TYPES
    return _are_names(value) and bool(value) and TYPES.issuperset(value)


def _check_each(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, Mapping) and all(map(check, value.values()))


_SCHEMA: Check = (_is_schema, "must be a schema: an object or a boolean")
_SCHEMAS: Check = (
    lambda value: isinstance(value, list) and bool(value) and all(map(_is_schema, value)),
    "must be a list of schemas that is not empty",
)
_MEMBERS: Check = (_check_each(_is_schema), "must be an object of schemas")
_COUNT: Check = (_is_count, "must be a whole number that is not negative")
_NUMBER: Check = (_is_number, "must be a number")
_TEXT: Check = (lambda value: isinstance(value, str), "must be a string")
_FLAG: Check = (lambda value: isinstance(value, bool), "must be true or false")
_LIST: Check = (lambda value: isinstance(value, list), "must be a list")
_NAMED: Check = (lambda value: isinstance(value, str) and _ANCHOR.fullmatch(value) is not None, "must be a plain name")

CHECKS: dict[str, Check] = {
    "type": (_is_type, f"must be one or several of {', '.join(sorted(TYPES))}, each once"),
    "required": (_are_names, "must be a list of names, each once"),
    "dependentRequired": (_check_each(_are_names), "must be an object of lists of names, each once"),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "must be a number above 0"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _COUNT),
    **dict.fromkeys(("minContains", "maxContains"), _COUNT),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _FLAG),
    **dict.fromkeys(("enum", "examples"), _LIST),
    **dict.fromkeys(("pattern", "format", "title", "description", "$comment", "$ref", "$dynamicRef"), _TEXT),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _TEXT),
    **dict.fromkeys(("$anchor", "$dynamicAnchor"), _NAMED),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _SCHEMAS),
    **dict.fromkeys(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"), _MEMBERS),
    **dict.fromkeys(("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then"), _SCHEMA),
    **dict.fromkeys(("else", "unevaluatedItems", "unevaluatedProperties", "contentSchema"), _SCHEMA),
}


def wrong_keyword(node: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first keyword that can't stand as it does, and what it must be."""
    for key, value in node.items():
        check = CHECKS.get(key)
        if check is not None and not check[0](value):
            return key, check[1]
    return None
