"""Schemas as clients really send them, turned into draft 2020-12, the one dialect that is validated here.

The client's own object is never changed. What other drafts, OpenAPI and sloppy generators write is rewritten:

    nullable: true                           null joins `type`, or an `anyOf` with null
    items: [..], additionalItems             prefixItems, items
    dependencies                             dependentRequired, dependentSchemas
    exclusiveMinimum: true (draft 4)         a number
    required: true on a property (draft 3)   the parent's `required`
    type: "STRING", type: "str" (Python)     "string"
    a keyword that is null, properties: []   nothing, {} (PHP)
    $schema, $id, id                         dropped: they only move the base of references
    $ref: "1/name" (zod-to-json-schema)      a pointer from the root
    $ref: "#/.../items/0"                    the same by the new name, `prefixItems`

References stay inside the document: nothing is ever fetched, so any other is a `BadSchema`. Data under `enum`, `const`,
`default` and `examples` is not touched. An unknown keyword may still hold schemas that a reference points into, so it
is walked too, but never refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from reliability.steps import Steps
from reliability.tool_calls import join
from reliability.tools.schema.patterns import BrokenPattern, Unasserted, estimate_compile_steps, translate

TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_PYTHON = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "dict": "object", "list": "array"}
_PYTHON |= {"none": "null", "nonetype": "null", "tuple": "array", "set": "array"}
_EMPTY_IN_PHP = frozenset({"properties", "items", "additionalProperties"})
_ANCHOR = re.compile(r"[A-Za-z_][-A-Za-z0-9._]*")
_RELATIVE = re.compile(r"(\d{1,2})((?:/.*)?)")
_IN_A_LIST = re.compile(r"/items(?=/\d+(?:/|$))")

_Check = tuple[Callable[[Any], bool], str]
_TEXT: _Check = (lambda value: isinstance(value, str), "must be a string")
_FLAG: _Check = (lambda value: isinstance(value, bool), "must be true or false")
_LIST: _Check = (lambda value: isinstance(value, list), "must be a list")
_NAMED: _Check = (lambda value: isinstance(value, str) and _ANCHOR.fullmatch(value) is not None, "must be a plain name")
_SCHEMA_DEPTH_MAX = 64
_SCHEMA_NODES_MAX = 20_000
DATA = frozenset({"enum", "const", "default", "examples", "example"})
_NULL_IS_DATA = frozenset({"const", "default", "example"})
_DROPPED = frozenset({"$schema", "$id", "id", "nullable", "$vocabulary"})
_STEPS_A_NODE = 12  # with everything that is done to it until it is compiled
_LIMITS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}


def is_number(value: Any) -> bool:
    """Return whether this is a number of JSON."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return is_number(value) and value >= 0 and (isinstance(value, int) or value.is_integer())


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


_SCHEMA: _Check = (_is_schema, "must be a schema: an object or a boolean")
_SCHEMAS: _Check = (
    lambda value: isinstance(value, list) and bool(value) and all(map(_is_schema, value)),
    "must be a list of schemas that is not empty",
)
_MEMBERS: _Check = (_check_each(_is_schema), "must be an object of schemas")
_COUNT: _Check = (_is_count, "must be a whole number that is not negative")
_NUMBER: _Check = (is_number, "must be a number")

CHECKS: dict[str, _Check] = {
    "type": (_is_type, f"must be one or several of {', '.join(sorted(TYPES))}, each once"),
    "required": (_are_names, "must be a list of names, each once"),
    "dependentRequired": (_check_each(_are_names), "must be an object of lists of names, each once"),
    "multipleOf": (lambda value: is_number(value) and value > 0, "must be a number above 0"),
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


def _list_keys(check: _Check) -> frozenset[str]:
    return frozenset(key for key, wanted in CHECKS.items() if wanted is check)


MAPS, _LISTS, _SINGLE = _list_keys(_MEMBERS), _list_keys(_SCHEMAS), _list_keys(_SCHEMA)
_KNOWN = frozenset({*CHECKS, *DATA, "additionalItems"})


class BadSchema(ValueError):
    """A schema that can't be used, with the place of the mistake in it."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


class Normaliser:
    """One walk over one schema. `unchecked` collects what is valid but not asserted here."""

    def __init__(self, steps: Steps) -> None:
        self.unchecked: list[str] = []
        self._nodes = 0
        self._steps = steps

    def normalise(self, node: Any, path: tuple[object, ...] = (), *, known: bool = True) -> Any:
        """Return the same schema in draft 2020-12. `known` is False below keywords that nobody knows. Raises
        `BadSchema`, or `OutOfSteps`: it is larger than the steps that were given."""
        self._nodes += 1
        self._steps.spend(_STEPS_A_NODE)
        if len(path) > _SCHEMA_DEPTH_MAX or self._nodes > _SCHEMA_NODES_MAX:
            raise BadSchema(join(*path[:8]), "the schema is larger or deeper than this server takes")
        if isinstance(node, list) and not known:
            return [self.normalise(item, (*path, i), known=False) for i, item in enumerate(node)]
        if not isinstance(node, Mapping):
            return node
        old = self._modernise(node)
        new = {key: self._normalise_keyword(key, value, path, known) for key, value in old.items()}
        self._check_patterns(new, path, known)
        _hoist_required(old, new)
        for key, value in new.items() if known else ():
            check = CHECKS.get(key)
            if check is not None and not check[0](value):
                raise BadSchema(join(*path, key), f"is no valid JSON Schema: it {check[1]}")
        return _allow_null(new) if node.get("nullable") is True else new

    def _modernise(self, node: Mapping[Any, Any]) -> dict[str, Any]:
        keep = {str(k): v for k, v in node.items() if k not in _DROPPED or (k == "id" and isinstance(v, Mapping))}
        new = {k: v for k, v in keep.items() if v is not None or k in _NULL_IS_DATA or k not in _KNOWN}
        new |= {k: {} for k, v in new.items() if v == [] and k in _EMPTY_IN_PHP}
        if isinstance(new.get("items"), list):
            new["prefixItems"] = new.pop("items")
            if "additionalItems" in new:
                new["items"] = new.pop("additionalItems")
        if isinstance(new.get("dependencies"), Mapping):
            both = new.pop("dependencies")
            names = {k: v for k, v in both.items() if isinstance(v, list)}
            schemas = {k: v for k, v in both.items() if k not in names}
            new |= {"dependentRequired": names} if names else {}
            new |= {"dependentSchemas": schemas} if schemas else {}
        for limit, bound in _LIMITS.items():
            if isinstance(new.get(limit), bool) and new.pop(limit) and bound in new:
                new[limit] = new.pop(bound)
        if isinstance(new.get("required"), bool):
            del new["required"]
        return _normalise_type(new)

    def _normalise_keyword(self, key: str, value: Any, path: tuple[object, ...], known: bool) -> Any:
        below = (*path, key)
        if key in DATA:
            return value
        if key in MAPS and isinstance(value, Mapping):
            return {str(k): self.normalise(v, (*below, k), known=known) for k, v in value.items()}
        if key in _LISTS and isinstance(value, list):
            return [self.normalise(v, (*below, i), known=known) for i, v in enumerate(value)]
        if key in _SINGLE:
            return self.normalise(value, below, known=known)
        if key in ("$ref", "$dynamicRef") and isinstance(value, str):
            value = _modernise_reference(value, path)
            if known and not value.startswith("#"):
                raise BadSchema(join(*below), "only references inside the schema (#/...) are followed")
        if isinstance(value, (Mapping, list)) and key not in _KNOWN:
            return self.normalise(value, below, known=False)
        return value

    def _check_patterns(self, new: dict[str, Any], path: tuple[object, ...], known: bool) -> None:
        """Take out the expressions that aren't asserted; refuse the ones that are none."""
        if isinstance(new.get("pattern"), str) and not self._is_asserted(new["pattern"], (*path, "pattern"), known):
            del new["pattern"]
        named = new.get("patternProperties")
        if not isinstance(named, dict):
            return
        kept = {k: v for k, v in named.items() if self._is_asserted(k, (*path, "patternProperties", k), known)}
        if len(kept) < len(named):
            # Keys that can't be told apart can't be refused either.
            for closed in ("additionalProperties", "unevaluatedProperties"):
                new.pop(closed, None)
        new["patternProperties"] = kept

    def _is_asserted(self, pattern: str, path: tuple[object, ...], known: bool) -> bool:
        self._steps.spend(estimate_compile_steps(pattern))
        try:
            translate(pattern, self._steps.owner)
        except Unasserted as why:
            self.unchecked.append(f"{join(*path)}: the pattern {why}")
            return False
        except BrokenPattern as why:
            if known:
                raise BadSchema(join(*path), f"the pattern {why}") from None
            return False
        return True


def _modernise_reference(reference: str, path: tuple[object, ...]) -> str:
    """Write a pointer from the root, and by the keywords' new names."""
    relative = _RELATIVE.fullmatch(reference)
    if relative is not None and int(relative[1]) <= len(path):
        above = path[: len(path) - int(relative[1])]
        reference = f"#{join(*above).replace('%', '%25')}{relative[2]}"
    return _IN_A_LIST.sub("/prefixItems", reference)


def _normalise_type(node: dict[str, Any]) -> dict[str, Any]:
    """Write types in capitals or by Python's names in today's words; an empty type is none."""
    kind = node.get("type")
    if kind in ("", "any", []):
        del node["type"]
    elif isinstance(kind, str):
        node["type"] = _name_type(kind)
    elif isinstance(kind, list) and all(isinstance(k, str) for k in kind):
        node["type"] = list(dict.fromkeys(map(_name_type, kind)))
    return node


def _name_type(kind: str) -> str:
    lower = kind.lower()
    return lower if lower in TYPES else _PYTHON.get(lower, kind)


def _hoist_required(old: Mapping[str, Any], new: dict[str, Any]) -> None:
    """Hoist what draft 3 says on a property itself: that it is required."""
    properties = old.get("properties")
    if not isinstance(properties, Mapping):
        return
    required = [str(k) for k, v in properties.items() if isinstance(v, Mapping) and v.get("required") is True]
    if required and isinstance(new.get("required", []), list):
        new["required"] = list(dict.fromkeys([*new.get("required", []), *required]))


def _allow_null(node: dict[str, Any]) -> dict[str, Any]:
    """Allow null by OpenAPI's `nullable`. The shape stays where it can, since references point into it."""
    new = dict(node)
    if isinstance(kind := new.get("type"), (str, list)):
        kinds = kind if isinstance(kind, list) else [kind]
        new["type"] = kinds if "null" in kinds else [*kinds, "null"]
    if isinstance(new.get("enum"), list) and None not in new["enum"]:
        new["enum"] = [*new["enum"], None]
    for either in ("anyOf", "oneOf"):
        if isinstance(new.get(either), list) and {"type": "null"} not in new[either]:
            new[either] = [*new[either], {"type": "null"}]
    if not {"$ref", "const", "allOf", "not", "if"} & new.keys():
        return new
    return {"anyOf": [node, {"type": "null"}]}
