"""Anthropic's tools and its `tool_choice`, as those of a chat completion.

A tool with a schema of its own is a function. One that has a `type` of Anthropic's (a web search, a shell, an editor)
is run by Anthropic's servers, or is known to its models by heart: neither is so here, and it is refused by its type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deployments.api.anthropic.messages_history import KIND_CHARS_MAX, refuse

__all__ = ["translate_choice", "translate_tools"]

CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def translate_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Translate the tools, each in its place.

    Raises:
        ApiError: `unsupported`: a tool of Anthropic's own; `invalid_tools`: one without a name or a schema.
    """
    return [_translate_tool(tool, f"tools.{at}") for at, tool in enumerate(tools)]


def _translate_tool(tool: Mapping[str, Any], path: str) -> dict[str, Any]:
    kind = tool.get("type")
    if kind not in (None, "custom"):
        words = (
            f"tools of type {str(kind)[:KIND_CHARS_MAX]!r} are not run here: leave it out, or send a tool of your own"
        )
        raise refuse(f"{path}.type", words, "unsupported")
    if not isinstance(tool.get("input_schema"), Mapping):
        raise refuse(f"{path}.input_schema", "a JSON schema is needed", "invalid_tools")
    function = {"name": tool.get("name"), "description": tool.get("description"), "parameters": tool["input_schema"]}
    if isinstance(tool.get("strict"), bool):
        function["strict"] = tool["strict"]
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def translate_choice(choice: Mapping[str, Any] | None) -> tuple[str | dict[str, Any] | None, bool | None]:
    """Translate the choice, and whether several calls may come at once.

    Raises:
        ApiError: `invalid_request`.
    """
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
    if not isinstance(kind, str) or kind not in CHOICES:
        raise refuse("tool_choice.type", "auto, any, tool or none is needed")
    return CHOICES[kind], parallel
