"""Declared tools that can be used at all: names, uniqueness, schemas that jsonschema can compile.

A schema that is wrong is the client's mistake and is said at once, with its place, instead of breaking a check later.
Checking a schema costs milliseconds and an agent sends the same tools with each request, so the verdict is kept under
the schema's own JSON text, in a bounded cache.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from deployments.wire.errors import ApiError

__all__ = ["check_tools"]

SCHEMAS_CACHED_MAX = 1024
# OpenAI allows 64 characters of [a-zA-Z0-9_-]; servers of the Model Context Protocol add dots, slashes and colons.
TOOL_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
CHOICES = ("auto", "none", "required")


def check_tools(
    tools: Sequence[Mapping[str, Any]], choice: str | Mapping[str, Any] | None, *, at: str, choice_param: str
) -> None:
    """Raise `ApiError` for the first tool, or the choice, that can't be used. `at` is the path of one function."""
    names: set[str] = set()
    for i, tool in enumerate(tools):
        path = at.format(i)
        name = _check_tool(tool, path)
        if name in names:
            raise ApiError("invalid_tools", f"{path}.name: {name!r} is declared twice", param=f"{path}.name")
        names.add(name)
    _check_choice(choice, names, choice_param)


def _check_tool(tool: Mapping[str, Any], path: str) -> str:
    function = tool.get("function")
    if tool.get("type", "function") != "function" or not isinstance(function, Mapping):
        raise ApiError("invalid_tools", f"{path}: only tools of type function are known", param=path)
    name = function.get("name")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise ApiError(
            "invalid_tools", f"{path}.name: 1 to 128 letters, digits or _ - . : / are needed", param=f"{path}.name"
        )
    schema = function.get("parameters")
    if schema is not None:
        _check_schema(schema, f"{path}.parameters")
    return name


def _check_schema(schema: object, path: str) -> None:
    if not isinstance(schema, Mapping):
        raise ApiError("invalid_tools", f"{path}: a JSON schema (an object) is needed", param=path)
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise ApiError("invalid_tools", f"{path}.type: arguments are an object, not {kind!r}", param=path)
    mistake = _schema_mistake(orjson.dumps(schema, option=orjson.OPT_SORT_KEYS))
    if mistake is not None:
        raise ApiError("invalid_tools", f"{path}{mistake}", param=path)


@lru_cache(maxsize=SCHEMAS_CACHED_MAX)
def _schema_mistake(schema: bytes) -> str | None:
    """What is wrong with a schema, with the place in it; None for nothing."""
    try:
        Draft202012Validator.check_schema(orjson.loads(schema))
    except SchemaError as error:
        place = "".join(f".{part}" for part in error.absolute_path)
        return f"{place}: {error.message[:500]}"
    except RecursionError:
        return ": nested too deeply"
    return None


def _check_choice(choice: str | Mapping[str, Any] | None, names: set[str], param: str) -> None:
    if choice is None or choice in ("auto", "none"):
        return
    if isinstance(choice, str):
        if choice not in CHOICES:
            words = f"{param}: auto, none, required or a named function is needed, not {choice!r}"
            raise ApiError("invalid_request", words, param=param)
        if not names:
            raise ApiError("invalid_request", f"{param}: {choice} needs tools", param=param)
        return
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    if name not in names:
        raise ApiError("invalid_request", f"{param}: there is no tool {name!r} in this request", param=param)
