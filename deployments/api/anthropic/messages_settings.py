"""What a message's request asks for besides an answer: thoughts, a form, help with a long context; and its tools.

How much a model thinks is bounded by its tier (`max_reasoning_tokens`), not by `budget_tokens`. Edits of the context
that would only shorten the prompt have no effect; one that changes what comes back is refused. So is a tool with a
`type` of Anthropic's: its servers run it, or its models know it by heart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.api.anthropic.messages_history import KIND_CHARS_MAX, refuse

CHOICES = {"auto": "auto", "any": "required", "none": "none"}
NOTES_MAX = 16
NAME_CHARS_MAX = 60
EDITS_WITHOUT_EFFECT = ("clear_tool_uses_", "clear_thinking_")
# What stands in every request of a client that has no say in it.
QUIET = frozenset({"metadata", "service_tier", "cache_control"})


@dataclass(frozen=True, slots=True)
class Thinking:
    """`shown`: the client can read thoughts. `asked`: whether the model is to think; None: as it does by itself."""

    shown: bool = False
    asked: bool | None = None


def read_thinking(setting: Mapping[str, Any] | None) -> Thinking:
    """Read `thinking`. Raises `ApiError`: `invalid_request`."""
    if setting is None:
        return Thinking()
    match setting.get("type"):
        case "disabled":
            return Thinking(asked=False)
        case "enabled":
            return Thinking(shown=setting.get("display") != "omitted", asked=True)
        case "adaptive":
            return Thinking(shown=setting.get("display") != "omitted")
    raise refuse("thinking.type", "enabled, adaptive or disabled is needed")


def read_format(config: Mapping[str, Any] | None, older: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Read the form of the answer, from `output_config.format` or the older `output_format`, as a `response_format`.
    Raises `ApiError`: `invalid_request`; `unsupported`: a key of `output_config` that this server doesn't know."""
    for name in config or ():
        if name not in ("effort", "format"):
            raise refuse(f"output_config.{name[:NAME_CHARS_MAX]}", "this server can't honour this", "unsupported")
    form, path = (config or {}).get("format"), "output_config.format"
    if form is None:
        form, path = older, "output_format"
    if form is None:
        return None
    if not isinstance(form, Mapping) or form.get("type") != "json_schema":
        raise refuse(f"{path}.type", "json_schema is needed")
    if not isinstance(form.get("schema"), Mapping):
        raise refuse(f"{path}.schema", "a JSON schema is needed")
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": form["schema"], "strict": True}}


def write_notes(fields: Mapping[str, Any], known: Collection[str]) -> tuple[str, ...]:
    """Write what of the request has no effect here, in words for the report. Raises `ApiError`: `unsupported`: an edit
    of the context that changes what comes back."""
    notes = []
    if (fields.get("output_config") or {}).get("effort") is not None:
        notes.append("output_config.effort has no effect here")
    if (fields.get("thinking") or {}).get("budget_tokens") is not None:
        notes.append("thinking.budget_tokens has no effect here: a tier's max_reasoning_tokens bounds its thoughts")
    notes += _read_edits(fields.get("context_management"))
    notes += [
        f"{name[:NAME_CHARS_MAX]} has no effect here" for name in fields if name not in QUIET and name not in known
    ]
    return tuple(notes[:NOTES_MAX])


def _read_edits(management: Mapping[str, Any] | None) -> list[str]:
    edits = (management or {}).get("edits") or []
    if not isinstance(edits, list):
        raise refuse("context_management.edits", "a list is needed")
    kinds = [str(edit.get("type")) if isinstance(edit, Mapping) else "" for edit in edits]
    for at, kind in enumerate(kinds):
        if not kind.startswith(EDITS_WITHOUT_EFFECT):
            path = f"context_management.edits.{at}.type"
            raise refuse(path, f"this server can't honour {kind[:KIND_CHARS_MAX]!r}", "unsupported")
    return [f"context_management: {kind[:KIND_CHARS_MAX]} has no effect here" for kind in kinds]


def translate_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Translate the tools, each in its place. Raises `ApiError`: `unsupported`: a tool of Anthropic's own;
    `invalid_tools`: one without a name or a schema."""
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
    """Translate the choice, and whether several calls may come at once. Raises `ApiError`: `invalid_request`."""
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
