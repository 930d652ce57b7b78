"""The tools of one request, ready to judge calls with. A client's mistake is a value with its place (`BadTools`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from reliability.steps import Steps
from reliability.tool_calls import join
from reliability.tools.schema.compiled import Compiled, compile_schema
from reliability.tools.schema.dialects import BadSchema
from reliability.tools.schema.references import Places
from reliability.tools.schema.tool_names import prepare_tool_names
from reliability.tools.schema.validator import UNBOUNDED

TOOLS_MAX = 1_024
FREE_TEXT = "the input of the tool, as it is"
"""Describes the one parameter of a tool of free text."""
SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema")  # OpenAI's, Anthropic's and MCP's
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")


@dataclass(frozen=True, slots=True)
class BadTools:
    """The client's mistake in its tools: a 400. `path` is a JSON pointer into the request's body."""

    path: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One declared tool. `parameters` is its schema in draft 2020-12; `unchecked` says what of it is not asserted."""

    name: str
    description: str
    strict: bool
    compiled: Compiled = field(repr=False)

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.compiled.schema

    @property
    def unchecked(self) -> tuple[str, ...]:
        return self.compiled.unchecked

    @cached_property
    def places(self) -> Places:
        """What the schema says of each place in the arguments."""
        return Places(self.parameters)

    @cached_property
    def required(self) -> tuple[str, ...]:
        return tuple(self.parameters.get("required", ()))

    @cached_property
    def free_text(self) -> str | None:
        """The one parameter of a tool that takes free text."""
        properties = self.parameters.get("properties", {})
        texts = [key for key, value in properties.items() if value == {"type": "string", "description": FREE_TEXT}]
        return texts[0] if len(texts) == len(properties) == 1 and self.required == (texts[0],) else None

    @property
    def takes_nothing(self) -> bool:
        """True where `{}` is a valid set of arguments."""
        return not self.parameters.get("required") and self.compiled.validator.is_valid({})


@dataclass(frozen=True)
class ToolBox:
    """The tools of one request, in the client's order. `wants_json`: JSON in the open is the answer itself unless it
    names a declared tool and its arguments. `asked_json`: the user asks for JSON."""

    tools: tuple[Tool, ...] = ()
    wants_json: bool = False
    asked_json: bool = False

    @cached_property
    def by_name(self) -> Mapping[str, Tool]:
        return {tool.name: tool for tool in self.tools}

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.by_name)

    def find(self, name: str) -> Tool | None:
        """Find the one tool that this name means, exactly or without a guess."""
        exact = self.by_name.get(name)
        if exact is not None or not isinstance(name, str):
            return exact
        meant = prepare_tool_names(self.names).find(name)
        return None if meant is None else self.by_name[meant]


def build_toolbox(tools: object, functions: object = None, steps: Steps | None = None) -> ToolBox | BadTools:
    """Build the toolbox of a request, from its `tools` and its legacy `functions`. Raises `OutOfSteps`: compiling the
    schemas takes more than `steps` (None: as many as it takes)."""
    steps = steps or Steps(UNBOUNDED)
    found: list[Tool] = []
    names: set[str] = set()
    for key, value in (("tools", tools), ("functions", functions)):
        if value is None:
            continue
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            return BadTools(join(key), "must be an array of tools")
        if len(value) + len(found) > TOOLS_MAX:
            return BadTools("/tools", f"more than {TOOLS_MAX} tools")
        for i, item in enumerate(value):
            tool = _build_tool(item, (key, i), steps, legacy=key == "functions")
            if isinstance(tool, BadTools):
                return tool
            if tool.name in names:
                place = (key, i, "name") if key == "functions" else (key, i, "function", "name")
                return BadTools(join(*place), f"two tools are named {tool.name!r}")
            found.append(tool)
            names.add(tool.name)
    return ToolBox(tuple(found))


def _build_tool(item: object, path: tuple[object, ...], steps: Steps, *, legacy: bool) -> Tool | BadTools:
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
    key, description = find_schema_key(function), function.get("description")
    path, given = (*path, key), function.get(key)
    if given is not None and not isinstance(given, Mapping):
        return BadTools(join(*path), "must be a JSON Schema object")
    compiled = compile_schema(given or {}, steps, arguments=True)
    if isinstance(compiled, BadSchema):
        return BadTools(join(*path) + compiled.path, compiled.message)
    return Tool(
        name=name,
        description=description if isinstance(description, str) else "",
        strict=bool(function.get("strict") or item.get("strict")),
        compiled=compiled,
    )


def find_schema_key(function: Mapping[str, Any]) -> str:
    """Find the field that holds the schema of a function's arguments."""
    return next((key for key in SCHEMA_KEYS if function.get(key) is not None), SCHEMA_KEYS[0])
