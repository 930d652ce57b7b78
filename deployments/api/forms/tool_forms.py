"""Tools and the choice of one, of any dialect, as chat completions have them; tools that another server runs, apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deployments.api.forms.message_blocks import KIND_CHARS_MAX
from deployments.errors import ApiError, refuse
from reliability.tools.schema.toolbox import SCHEMA_KEYS, find_schema_key

Tool = Mapping[str, Any]

# Anthropic's and OpenAI's servers run these, whatever version stands behind.
_SERVER_TOOLS = ("web_search", "web_fetch_", "code_execution_", "tool_search_tool_", "image_generation")
_KINDS_SHOWN = 8
CHOICE_WORDS = {"auto": "auto", "any": "required", "none": "none"}
# What calls itself a function, or by no name that says what it is.
_FUNCTIONS = (None, "function", "tool")
_OF_A_FUNCTION = ("name", "description", "strict")


def leave_out_served(tools: Sequence[Tool]) -> tuple[list[tuple[int, Tool]], tuple[str, ...]]:
    """Return the tools with their places, without those that another server runs, and a note that names these. Raises
    `ApiError`: `unsupported` where there are no others."""
    served = [str(tool["type"]) for tool in tools if _is_server_tool(tool)]
    if served and len(served) == len(tools):
        raise refuse_kind(served[0], "tools.0")
    own = [(place, tool) for place, tool in enumerate(tools) if not _is_server_tool(tool)]
    return own, note_kept_out(served)


def note_kept_out(kinds: Sequence[str]) -> tuple[str, ...]:
    """Make the note that names the tools which the model isn't shown, where there are any."""
    shown = [kind[:KIND_CHARS_MAX] for kind in dict.fromkeys(kinds)]
    more = f" and {len(shown) - _KINDS_SHOWN} more" if len(shown) > _KINDS_SHOWN else ""
    named = ", ".join(shown[:_KINDS_SHOWN]) + more
    return (f"tools that this server doesn't have were kept from the model: {named}",) if kinds else ()


def translate_choice(choice: Mapping[str, Any] | None) -> tuple[str | dict[str, Any] | None, bool | None]:
    """Translate a choice in Anthropic's words, and whether several calls may come at once. Raises `ApiError`."""
    if choice is None:
        return None, None
    kind = choice.get("type")
    single = choice.get("disable_parallel_tool_use")
    if single not in (None, True, False):
        raise refuse("tool_choice.disable_parallel_tool_use", "true or false is needed")
    parallel = False if single else None
    if kind == "tool":
        if not isinstance(choice.get("name"), str):
            raise refuse("tool_choice.name", "the name of a tool is needed")
        return {"type": "function", "function": {"name": choice["name"]}}, parallel
    if not isinstance(kind, str) or kind not in CHOICE_WORDS:
        raise refuse("tool_choice.type", "auto, any, tool or none is needed")
    return CHOICE_WORDS[kind], parallel


def _is_server_tool(tool: Tool) -> bool:
    return str(tool.get("type")).startswith(_SERVER_TOOLS)


def refuse_kind(kind: str, path: str) -> ApiError:
    """Make the error for a tool of a kind that isn't run here."""
    words = f"tools of type {kind[:KIND_CHARS_MAX]!r} are not run here: leave it out, or send a tool of your own"
    if kind == "custom":
        words = "a custom tool takes free text, which only /v1/responses reads: send a function with a text parameter"
    return refuse(f"{path}.type", words, "unsupported")


def read_kind(tool: Tool, path: str) -> Tool:
    """Return a tool that is a function, or brings its schema, as a function. Raises `ApiError`: `unsupported` for
    others."""
    kind = tool.get("type")
    if kind in _FUNCTIONS or ("function" not in tool and tool.get(find_schema_key(tool)) is not None):
        return {**tool, "type": "function"}
    raise refuse_kind(str(kind), path)


def nest_choice(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a choice, or a list of those allowed, in chat completions' form. Raises `ApiError`: `unsupported`."""
    kind, function = choice.get("type"), choice.get("function")
    if kind == "allowed_tools":
        inner = choice.get("allowed_tools", choice)
        tools = inner.get("tools") if isinstance(inner, Mapping) else None
        if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
            return choice
        nested = [nest_choice(tool) for tool in tools]
        return {"type": kind, "allowed_tools": {"mode": inner.get("mode", "auto"), "tools": nested}}
    if kind == "function" and isinstance(function, Mapping):
        return choice
    name = function.get("name") if isinstance(function, Mapping) else choice.get("name", function)
    if name is None and kind not in _FUNCTIONS:
        raise refuse_kind(str(kind), "tool_choice")
    return {"type": "function", "function": {"name": name}}


def nest_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tool of Responses' flat form, Anthropic's or MCP's in that of chat completions, without what is null:
    chat templates join a description to texts."""
    function = {name: value for name, value in tool.get("function", tool).items() if value is not None}
    key = find_schema_key(function)
    inner = {name: value for name, value in function.items() if name in _OF_A_FUNCTION}
    inner |= {"parameters": function[key]} if key in function else {}
    if "function" not in tool:
        marker = {name: value for name, value in tool.items() if name == "cache_control"}
        return {"type": "function", "function": inner, **marker}
    return {**tool, "function": inner if function.keys() & SCHEMA_KEYS[1:] else function}
