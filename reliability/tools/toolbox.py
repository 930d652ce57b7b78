"""The tools of one request, ready to judge calls with.

`build_toolbox` takes what the client sent (`tools`, or the legacy `functions`) and gives back a `ToolBox`, or
`BadTools`: the client's mistake as a value, with its place, for a 400. It never raises and never fetches. A
`ToolBox` is frozen and may be shared by threads.

Compiling a schema (normalise, meta-check, references) costs a thousand times what a validation costs, and
agents send the same tools with every request, so compiled schemas are kept by their text,
`SCHEMAS_CACHED_MAX` of them. That memory is invisible: the same text compiles to the same thing.

Names are looked up exactly, then by what may differ without a guess: case, `-` against `_`, and a
`functions.` prefix, and only where one single tool answers to that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend

from reliability.tools.formats import FORMATS
from reliability.tools.patterns import translate
from reliability.tools.references import check_references
from reliability.tools.schema import BadSchema, Normaliser
from reliability.tools.verdicts import join

__all__ = ["BadTools", "Tool", "ToolBox", "build_toolbox", "fold"]

TOOLS_MAX = 1_024
SCHEMAS_CACHED_MAX = 1_024
SCHEMA_CHARS_MAX = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
_PREFIX = "functions."


@dataclass(frozen=True, slots=True)
class BadTools:
    """The client's mistake in its tools: a 400. `path` is a JSON pointer into the request's body."""

    path: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One declared tool. `parameters` is its schema in draft 2020-12; `unchecked` says what of it is not
    asserted."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool
    unchecked: tuple[str, ...]
    validator: Any = field(repr=False, compare=False)

    @property
    def required(self) -> tuple[str, ...]:
        """The names that the schema's top level requires."""
        return tuple(self.parameters.get("required", ()))

    @property
    def takes_nothing(self) -> bool:
        """True where `{}` is a valid set of arguments."""
        return not self.parameters.get("required") and bool(self.validator.is_valid({}))


@dataclass(frozen=True)
class ToolBox:
    """The tools of one request, in the client's order."""

    tools: tuple[Tool, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, Tool]:
        """Tools by their exact name."""
        return {tool.name: tool for tool in self.tools}

    @cached_property
    def _folded(self) -> Mapping[str, Tool | None]:
        """Tools by their folded name; None where two share it."""
        found: dict[str, Tool | None] = {}
        for tool in self.tools:
            key = fold(tool.name)
            found[key] = None if key in found else tool
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The declared names, in order."""
        return tuple(self.by_name)

    def find(self, name: str) -> Tool | None:
        """The one tool that this name means, exactly or without a guess."""
        exact = self.by_name.get(name)
        return exact if exact is not None else self._folded.get(fold(name))


def fold(name: str) -> str:
    """A name without what models get wrong and mean the same by."""
    return name.strip().removeprefix(_PREFIX).replace("-", "_").casefold()


def build_toolbox(tools: object, functions: object = None) -> ToolBox | BadTools:
    """The toolbox of a request, from its `tools` and its legacy `functions`; None and [] mean that there
    are none."""
    found: list[Tool] = []
    for key, value in (("tools", tools), ("functions", functions)):
        if value is None:
            continue
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            return BadTools(join(key), "must be an array of tools")
        for i, item in enumerate(value):
            tool = _tool(item, (key, i), legacy=key == "functions")
            if isinstance(tool, BadTools):
                return tool
            if any(tool.name == other.name for other in found):
                return BadTools(
                    join(key, i, *(() if key == "functions" else ("function",)), "name"),
                    f"two tools are named {tool.name!r}",
                )
            found.append(tool)
    if len(found) > TOOLS_MAX:
        return BadTools("/tools", f"more than {TOOLS_MAX} tools")
    return ToolBox(tuple(found))


def _tool(item: object, path: tuple[object, ...], *, legacy: bool) -> Tool | BadTools:
    """One entry of `tools` or `functions`."""
    if not isinstance(item, Mapping):
        return BadTools(join(*path), "must be an object")
    function: Any = item
    if not legacy and ("function" in item or "name" not in item):
        if item.get("type", "function") != "function":
            return BadTools(join(*path, "type"), "only tools of type 'function' are known here")
        path, function = (*path, "function"), item.get("function")
        if not isinstance(function, Mapping):
            return BadTools(join(*path), "must be an object with a name")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return BadTools(
            join(*path, "name"),
            "must be 1 to 128 letters, digits or _ . : / -, and begin with one of the first two or _",
        )
    return _compiled_tool(name, function, bool(function.get("strict") or item.get("strict")), path)


def _compiled_tool(name: str, function: Mapping[str, Any], strict: bool, path: tuple[object, ...]) -> Tool | BadTools:
    key = "input_schema" if "input_schema" in function and "parameters" not in function else "parameters"
    given = function.get(key)
    path = (*path, key)
    if given is not None and not isinstance(given, Mapping):
        return BadTools(join(*path), "must be a JSON Schema object")
    try:
        text = json.dumps(given or {}, sort_keys=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return BadTools(join(*path), "must be plain JSON of a bounded depth")
    compiled = _compile(text)
    if isinstance(compiled, BadSchema):
        return BadTools(join(*path) + compiled.path, compiled.message)
    schema, validator, unchecked = compiled
    description = function.get("description")
    return Tool(
        name=name,
        description=description if isinstance(description, str) else "",
        parameters=schema,
        strict=strict,
        unchecked=unchecked,
        validator=validator,
    )


# --- compiling ----------------------------------------------------------------------------------------------


def _pattern(_validator: Any, pattern: str, instance: object, _schema: object) -> Any:
    """The keyword `pattern`, by our own rules for expressions."""
    if isinstance(instance, str) and not translate(pattern).allows(instance):
        yield ValidationError(f"does not match {pattern!r}")


_VALIDATOR: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {"pattern": _pattern}
)
_META: Any = Draft202012Validator(Draft202012Validator.META_SCHEMA)


@lru_cache(maxsize=SCHEMAS_CACHED_MAX)
def _compile(text: str) -> tuple[Mapping[str, Any], Any, tuple[str, ...]] | BadSchema:
    """A schema ready to validate with, what of it is not asserted, or what is wrong with it."""
    if len(text) > SCHEMA_CHARS_MAX:
        return BadSchema("", "the schema is larger than this server takes")
    walk = Normaliser()
    try:
        schema = walk.schema(json.loads(text))
        _check_meta(schema)
        check_references(schema)
        _check_object(schema)
        validator = _VALIDATOR(schema, format_checker=FORMATS)
        validator.is_valid({})
    except BadSchema as bad:
        return BadSchema(bad.path, bad.message)  # without the stack that it was raised from
    except (RecursionError, SchemaError, ValueError, TypeError, KeyError, ArithmeticError) as error:
        return BadSchema("", f"the schema can't be compiled: {type(error).__name__}")
    return schema, validator, tuple(walk.unchecked)


def _check_meta(schema: Mapping[str, Any]) -> None:
    """The schema against the schema of schemas; the deepest mistake is the one to name."""
    errors = list(_META.iter_errors(schema))
    if errors:
        worst = max(errors, key=lambda error: len(error.absolute_path))
        raise BadSchema(join(*worst.absolute_path), f"is no valid JSON Schema: {worst.message[:200]}")


def _check_object(schema: Mapping[str, Any]) -> None:
    """Arguments are always an object, so a schema that allows none can never be met."""
    kinds = schema.get("type", "object")
    if "object" not in ([kinds] if isinstance(kinds, str) else kinds):
        raise BadSchema("/type", "the parameters of a tool must be an object")
