"""Is a call right? Deterministic: names and arguments against what counts, whatever their spelling.

*Valid* is what passes the tool's own schema as it came; *right* is valid and one of the acceptable calls. Texts are
compared without case, spaces and punctuation; a list of one may stand for its item in an object. An argument that
nobody asked for is wrong, and one that may be missing lists `""`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator

__all__ = ["are_right", "are_valid", "fits"]

Wanted = Mapping[str, Any]


def are_right(calls: Sequence[tuple[str, str]], wanted: Sequence[Wanted]) -> bool:
    """Tell whether the calls are the wanted ones, in any order. Each of `wanted` has a `name`, and `arguments` with the
    values that count."""
    left = list(wanted)
    for name, arguments in calls:
        given = _parse(arguments)
        hit = next((one for one in left if one["name"] == name and given is not None and fits(given, one)), None)
        if hit is None:
            return False
        left.remove(hit)
    return not left


def are_valid(calls: Sequence[tuple[str, str]], tools: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether there are calls, and all of them are of declared tools and fit their schemas."""
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}
    return bool(calls) and all(_is_valid(name, arguments, schemas) for name, arguments in calls)


def _is_valid(name: str, arguments: str, schemas: Mapping[str, Any]) -> bool:
    given = _parse(arguments)
    return name in schemas and given is not None and bool(Draft202012Validator(schemas[name]).is_valid(given))


def _parse(arguments: str) -> dict[str, Any] | None:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def fits(given: Mapping[str, Any], wanted: Wanted) -> bool:
    """Tell whether arguments are acceptable."""
    allowed = wanted["arguments"]
    if any(key not in allowed for key in given):
        return False
    return all(_is_one_of(given[key], values) if key in given else "" in values for key, values in allowed.items())


def _is_one_of(value: Any, values: Sequence[Any]) -> bool:
    return any(_normalize(value) == _normalize(one) for one in values)


def _normalize(value: Any) -> Any:
    if isinstance(value, str):
        return "".join(c for c in value.lower() if c not in " ,./-_*^'\"")
    if isinstance(value, Mapping):
        return {
            key: _normalize(one[0] if isinstance(one, list) and len(one) == 1 else one) for key, one in value.items()
        }
    if isinstance(value, list):
        return [_normalize(one) for one in value]
    return value
