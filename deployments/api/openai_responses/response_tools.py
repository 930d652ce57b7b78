"""`tools` and `tool_choice`, inwards: each kind of tool is translated, kept out with a note, or refused by its name.

A `custom` tool (free text) becomes a function with one string `input`. A tool of a `namespace` (Codex's MCP servers) is
shown as `mcp__server__tool`, one of `functions` under its own name. A `tool_search` that the client runs itself is a
function, and the tools that it has found are declared behind the others (`ToolsRead.add`).
Invariants: the calls of each tool that the model is shown can be read back; a choice forces no tool that it isn't
shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deployments.api.forms.tool_forms import note_kept_out
from deployments.errors import refuse
from reliability.tools.schema.toolbox import FREE_TEXT

# Codex declares these in every request. A namespace is kept out where it lists no tools.
_KEPT_OUT = ("namespace", "web_search", "image_generation", "tool_search")
_FUNCTION_FIELDS = ("name", "description", "parameters", "strict")
_NOTED_FIELDS = ("defer_loading", "output_schema", "allowed_callers")
_WORDS = ("auto", "none", "required")
_GRAMMAR_CHARS_MAX = 20_000
SEARCH = "tool_search"
_JOINED_CHARS_MAX = 64  # OpenAI's API and most others refuse a longer name
_PLAIN = "functions"  # the namespace of what has none


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsRead:
    """The tools as chat completions have them. `places`: the path of each in the client's list; `custom`: those whose
    calls are free text; `namespaces`: namespace and name there of those that stand in one; `searches`: the client runs
    `tool_search`; `searched`: those that it has found."""

    tools: list[dict[str, Any]]
    choice: str | dict[str, Any] | None
    places: tuple[str, ...]
    custom: frozenset[str]
    namespaces: Mapping[str, tuple[str, str]]
    notes: tuple[str, ...]
    searches: bool = False
    searched: frozenset[str] = frozenset()

    def add(self, searches: Iterable[ToolsRead]) -> ToolsRead:
        """Add what searches have found, one after the other, but for names that are known."""
        known = {tool["function"]["name"] for tool in self.tools}
        new: dict[str, dict[str, Any]] = {}
        custom, namespaces = set(self.custom), dict(self.namespaces)
        for found in searches:
            own = {tool["function"]["name"]: tool for tool in found.tools}
            own = {name: tool for name, tool in own.items() if name not in known and name not in new}
            new.update(own)
            custom |= found.custom & own.keys()
            for name, place in found.namespaces.items():
                namespaces.setdefault(name, place)
        return replace(
            self,
            tools=[*self.tools, *new.values()],
            custom=frozenset(custom),
            namespaces=namespaces,
            searched=self.searched | new.keys(),
        )


def read_tools(tools: Sequence[Mapping[str, Any]] | None, choice: Any) -> ToolsRead:
    """Read both fields. Raises `ApiError`: `invalid_tools`, `unsupported`, `invalid_request`."""
    read: list[tuple[str, dict[str, Any]]] = []
    namespaces: dict[str, tuple[str, str]] = {}
    kept_out: list[str] = []
    custom: set[str] = set()
    notes: list[str] = []
    searches = False
    for place, namespace, declared in _list_declared(tools or ()):
        kind, path = declared.get("type"), f"tools.{place}"
        tool = declared
        if namespace is not None and kind in ("function", "custom"):
            bare = _read_name(declared, path)
            tool = {**declared, "name": join_namespace(namespace, bare)}
            if namespace != _PLAIN:
                namespaces[tool["name"]] = namespace, bare
        if kind == "function":
            read.append((place, _read_function(tool, path)))
            notes += (f"{path}.{name} has no effect here" for name in _NOTED_FIELDS if tool.get(name))
        elif kind == "custom":
            read.append((place, _read_custom(tool, path, notes)))
            custom.add(tool["name"])
        elif is_search(declared):
            searches = True
            read.append((place, _read_function({**declared, "name": SEARCH}, path)))
        elif _is_kept_out(kind):
            name = tool.get("name")
            kept_out.append(f"{kind} {name[:64]}" if isinstance(name, str) and name else str(kind)[:64])
        else:
            if not isinstance(kind, str):
                raise refuse(f"{path}.type", "the kind of the tool is needed: function or custom", "invalid_tools")
            words = f"this server has no tool of type {kind[:64]!r}; function and custom are supported"
            raise refuse(f"{path}.type", words, "unsupported")
    notes += note_kept_out(kept_out)
    translated = [tool for _, tool in read]
    names = {tool["function"]["name"]: tool for tool in translated}
    return ToolsRead(
        tools=translated,
        choice=_read_choice(choice, names, bool(kept_out), notes),
        places=tuple(place for place, _ in read),
        custom=frozenset(custom),
        namespaces=namespaces,
        notes=tuple(notes),
        searches=searches,
    )


def is_search(item: Mapping[str, Any]) -> bool:
    """Tell whether a tool, a call or an output is of the search that the client itself runs."""
    return str(item.get("type")).startswith(SEARCH) and item.get("execution") == "client"


def join_namespace(namespace: object, name: str) -> str:
    """Join what a model calls a tool of a namespace. The end of a name that is longer than APIs take is its digest."""
    if not isinstance(namespace, str) or namespace in ("", _PLAIN):
        return name
    joined = f"{namespace.removesuffix('__')}__{name}"
    digest = "_" + hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return joined if len(joined) <= _JOINED_CHARS_MAX else joined[: _JOINED_CHARS_MAX - len(digest)] + digest


def _list_declared(tools: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str | None, Mapping[str, Any]]]:
    """List the tools with their places and namespaces. Raises `ApiError`: `invalid_tools`."""
    for place, tool in enumerate(tools):
        if tool.get("type") != "namespace" or not isinstance(tool.get("tools"), list):
            yield str(place), None, tool
            continue
        namespace = _read_name(tool, f"tools.{place}")
        for at, inner in enumerate(tool["tools"]):
            if not isinstance(inner, Mapping):
                raise refuse(f"tools.{place}.tools.{at}", "an object is needed", "invalid_tools")
            yield f"{place}.tools.{at}", namespace, inner


def _is_kept_out(kind: object) -> bool:
    """Tell whether a tool of this kind is left out with a note; `web_search` has versions in its name."""
    return isinstance(kind, str) and (kind in _KEPT_OUT or kind.startswith("web_search_"))


def _read_name(tool: Mapping[str, Any], path: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        words = "a name is needed" + ("; here it stands beside `type`" if "function" in tool else "")
        raise refuse(f"{path}.name", words, "invalid_tools")
    return name


def _read_function(tool: Mapping[str, Any], path: str) -> dict[str, Any]:
    _read_name(tool, path)
    function = {name: tool[name] for name in _FUNCTION_FIELDS if tool.get(name) is not None}
    if not isinstance(function.get("description", ""), str):
        raise refuse(f"{path}.description", "a text is needed", "invalid_tools")
    if not isinstance(function.get("strict", False), bool):
        raise refuse(f"{path}.strict", "true or false is needed", "invalid_tools")
    return {"type": "function", "function": function}


def _read_custom(tool: Mapping[str, Any], path: str, notes: list[str]) -> dict[str, Any]:
    """Read a tool of free text. A grammar for it is shown to the model, which need not keep to it."""
    name, description = _read_name(tool, path), tool.get("description") or ""
    if not isinstance(description, str):
        raise refuse(f"{path}.description", "a text is needed", "invalid_tools")
    form = tool.get("format")
    if form is not None and not isinstance(form, Mapping):
        raise refuse(f"{path}.format", "an object is needed", "invalid_tools")
    if form is not None and form.get("type", "text") != "text":
        description += _describe_grammar(form, f"{path}.format")
        notes.append(f"{path}.format: the grammar of {name[:64]} is shown to the model and isn't enforced")
    schema = {
        "type": "object",
        "properties": {"input": {"type": "string", "description": FREE_TEXT}},
        "required": ["input"],
        "additionalProperties": False,
    }
    function: dict[str, Any] = {"name": name, "parameters": schema}
    return {"type": "function", "function": function | ({"description": description} if description else {})}


def _describe_grammar(form: Mapping[str, Any], path: str) -> str:
    definition, syntax = form.get("definition"), form.get("syntax")
    if form.get("type") != "grammar":
        raise refuse(f"{path}.type", "text or grammar is needed", "invalid_tools")
    if not isinstance(definition, str) or len(definition) > _GRAMMAR_CHARS_MAX:
        words = f"a text of at most {_GRAMMAR_CHARS_MAX} characters is needed"
        raise refuse(f"{path}.definition", words, "invalid_tools")
    if syntax not in ("lark", "regex"):
        raise refuse(f"{path}.syntax", "lark or regex is needed", "invalid_tools")
    return f"\n\nThe input follows this {syntax} grammar:\n{definition}"


def _read_choice(
    choice: Any, names: Mapping[str, Any], kept_out: bool, notes: list[str]
) -> str | dict[str, Any] | None:
    if choice is None or isinstance(choice, str):
        if choice not in (None, *_WORDS):
            raise refuse("tool_choice", f"one of {', '.join(_WORDS)} is needed, or an object that names a tool")
        if choice == "required" and not names:
            why = "none of the declared tools can be called here" if kept_out else "no tools are declared"
            raise refuse("tool_choice", why)
        return choice
    if not isinstance(choice, Mapping):
        raise refuse("tool_choice", "a word or an object is needed")
    kind = choice.get("type")
    if kind in ("function", "custom"):
        return _read_named(choice, names, "tool_choice")
    if kind == "allowed_tools":
        return _read_allowed(choice, names, notes)
    if _is_kept_out(kind):
        words = f"the tool {str(kind)[:64]!r} isn't had here, and can't be forced"
        raise refuse("tool_choice.type", words, "unsupported")
    if not isinstance(kind, str):
        raise refuse("tool_choice.type", "function, custom or allowed_tools is needed")
    raise refuse("tool_choice.type", f"this server has no tool of type {kind[:64]!r}", "unsupported")


def _read_named(choice: Mapping[str, Any], names: Mapping[str, Any], path: str) -> dict[str, Any]:
    name = choice.get("name")
    name = join_namespace(choice.get("namespace"), name) if isinstance(name, str) else None
    if name not in names:
        raise refuse(f"{path}.name", "names no declared tool")
    return {"type": "function", "function": {"name": name}}


def _read_allowed(choice: Mapping[str, Any], names: Mapping[str, Any], notes: list[str]) -> str | dict[str, Any]:
    """Read a list of the tools that may be called now; what of it is kept out isn't called anyway."""
    mode, listed, path = choice.get("mode", "auto"), choice.get("tools"), "tool_choice.tools"
    if mode not in ("auto", "required"):
        raise refuse("tool_choice.mode", "auto or required is needed")
    if not isinstance(listed, list):
        raise refuse(path, "a list of tools is needed")
    allowed: list[dict[str, Any]] = []
    for place, tool in enumerate(listed):
        if not isinstance(tool, Mapping):
            raise refuse(f"{path}.{place}", "an object is needed")
        if tool.get("type") in ("function", "custom"):
            allowed.append(_read_named(tool, names, f"{path}.{place}"))
        elif not _is_kept_out(tool.get("type")):
            raise refuse(f"{path}.{place}.type", "function or custom is needed")
    if len(allowed) < len(listed):
        notes.append("tool_choice: tools that were kept from the model are allowed in vain")
    if not allowed and mode == "required":
        raise refuse(path, "none of them can be called here")
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}} if allowed else "none"
