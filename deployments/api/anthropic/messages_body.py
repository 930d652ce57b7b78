"""`POST /v1/messages`, inwards: from bytes to the one internal request, or one `ApiError` that names the field.

Fields are translated into a chat completion's, whose errors are told by the client's names. What changes the answer and
can't be honoured is refused; what only asks for speed, a price or a place is noted in the report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Unpack

from pydantic import Field

from deployments.api.anthropic.context_edits import drop_compacted, read_compaction, read_edits
from deployments.api.anthropic.message_tools import MessageTools, read_message_tools
from deployments.api.anthropic.messages_history import translate_history
from deployments.api.forms.tool_forms import translate_choice
from deployments.api.openai_chat import (
    MESSAGES_MAX,
    STOPS_MAX,
    TOOLS_MAX,
    ChatCall,
    ModelName,
    ParseTerms,
    Strict,
    Text,
    TokenCount,
    build_call,
    parse_object,
    read_body,
)
from deployments.api.thinking_wish import TOKENS_MAX, ThinkingWish, build_thinking_wish
from deployments.errors import ApiError, refuse

NOTES_MAX = 16
_NAME_CHARS_MAX = 60
# What this server can't honour, and why.
REFUSED = {
    "mcp_servers": "this server runs no tools itself: it can't honour this",
    "container": "this server runs no tools itself: it can't honour this",
    "thread": "this server keeps no conversations: send the whole history",
}
# What stands in every request of a client that has no say in it.
_QUIET = frozenset({"metadata", "service_tier", "cache_control"})
# What is read of these; the rest has no effect.
_READ_WITHIN = {"output_config": ("effort", "format"), "thinking": ("type", "budget_tokens", "display")}


def _read_thinking(setting: Mapping[str, Any] | None, effort: Any = None) -> tuple[ThinkingWish, bool]:
    """Read `thinking` and `output_config.effort`; return as well whether the client can read thoughts."""
    given = setting or {"type": "adaptive", "display": "omitted"}
    kind, budget = given.get("type"), given.get("budget_tokens")
    if kind not in ("disabled", "enabled", "adaptive", "between_tools"):
        raise refuse("thinking.type", "enabled, adaptive, between_tools or disabled is needed")
    if budget is not None and (type(budget) is not int or not 1 <= budget <= TOKENS_MAX):
        raise refuse("thinking.budget_tokens", f"a whole number from 1 to {TOKENS_MAX} is needed")
    wish = build_thinking_wish((effort,), (budget,), off=kind == "disabled")
    if kind == "enabled":
        wish = replace(wish, asked=True)
    return wish, kind != "disabled" and given.get("display") != "omitted"


def _read_format(config: Mapping[str, Any] | None, older: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Read the form of the answer, from `output_config.format` or the older `output_format`, as a `response_format`."""
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


_TOP_K_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessagesWanted:
    """What only the way out of a message must know. `thinking`: the client asked for thoughts, so it can read them."""

    thinking: bool = False


class MessagesBody(Strict):
    """The fields that this server reads."""

    model: ModelName = "auto"
    messages: list[Any] = Field(min_length=1, max_length=MESSAGES_MAX)
    max_tokens: TokenCount | None = None
    system: str | list[Any] | None = None
    stream: bool | None = None
    temperature: float | None = Field(default=None, ge=0, le=1)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=0, le=_TOP_K_MAX)
    stop_sequences: Annotated[list[Text], Field(max_length=STOPS_MAX)] | None = None
    tools: list[dict[str, Any]] | None = Field(default=None, max_length=TOOLS_MAX)
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    context_management: dict[str, Any] | None = None
    compaction: dict[str, Any] | None = None
    mcp_servers: list[Any] | None = None
    container: str | dict[str, Any] | None = None
    thread: dict[str, Any] | None = None


_TOOL = re.compile(r"tools\.(\d+)\b")
FIELDS = frozenset(MessagesBody.model_fields)
# What the checks of a chat completion call a field, and what the client has called it.
NAMES = (
    (r"^tools\.(\d+)\.function\.parameters\b", r"tools.\1.input_schema"),
    (r"^tools\.(\d+)\.function\b", r"tools.\1"),
    (r"^tool_choice\.function\b", "tool_choice"),
    (r"^response_format(\.json_schema)?\b", "output_config.format"),
    (r"^parallel_tool_calls\b", "tool_choice.disable_parallel_tool_use"),
    (r"^stop\b", "stop_sequences"),
)


def parse_messages(raw: bytes, headers: Mapping[str, str], **terms: Unpack[ParseTerms]) -> ChatCall:
    """Parse one body; raises what `deployments.api.openai_chat.parse_chat` does."""
    fields, changed = parse_object(raw)
    body = read_body(MessagesBody, fields)
    for name, why in REFUSED.items():
        if getattr(body, name):
            raise refuse(name, why, "unsupported")
    tools = read_message_tools(body.tools, *drop_compacted(body.messages))
    edits, compaction = read_edits(body.context_management)
    if body.compaction is not None:
        if body.context_management is not None:
            raise refuse("compaction", "it can't be combined with context_management")
        compaction = read_compaction(body.compaction)
    left_out: dict[str, None] = {}
    translated = _translate(body, tools, left_out)
    thinking, shown = _read_thinking(body.thinking, (body.output_config or {}).get("effort"))
    notes = (*changed, *tools.notes, *left_out, *_list_ignored(fields, body))
    try:
        call = build_call(
            translated,
            headers,
            body_bytes=len(raw) + tools.written_chars,
            thinking=thinking,
            names=fields,
            wanted=_MessagesWanted(thinking=shown),
            notes=notes,
            **terms,
        )
    except ApiError as error:
        raise rename(error, tools.places) from None
    request = replace(call.request, searched=tools.searched)
    return replace(call, edits=edits, compaction=compaction, request=request)


def _list_ignored(fields: Mapping[str, Any], body: MessagesBody) -> list[str]:
    """List the fields without effect, as notes. Raises `ApiError`: `invalid_request`."""
    config, thinking = body.output_config or {}, body.thinking or {}
    budget = config.get("task_budget")
    if budget is not None and not (isinstance(budget, dict) and type(budget.get("total")) is int):
        raise refuse("output_config.task_budget", "an object with a type and a total is needed")
    given = {name: value for name, value in fields.items() if name not in FIELDS and name not in _QUIET}
    for outer, inner in (("output_config", config), ("thinking", thinking)):
        given |= {f"{outer}.{name}": value for name, value in inner.items() if name not in _READ_WITHIN[outer]}
    if any(isinstance(message, dict) and message.get("output_config") for message in body.messages):
        given["messages.output_config"] = True
    ignored = [name for name, value in given.items() if value is not None][:NOTES_MAX]
    read_as = ["thinking.type: between_tools is read as adaptive"] if thinking.get("type") == "between_tools" else []
    return [*(f"{name[:_NAME_CHARS_MAX]} has no effect here" for name in ignored), *read_as]


def rename(error: ApiError, places: Sequence[int] = ()) -> ApiError:
    """Return the error with the client's name of its field, in `param` and at the head of its words. `places`: where
    each tool that was passed on stands in the client's `tools`."""
    param = error.param
    if param is None:
        return error
    if (found := _TOOL.match(param)) and int(found[1]) < len(places):
        param = f"tools.{places[int(found[1])]}{param[found.end() :]}"
    for pattern, name in NAMES:
        param = re.sub(pattern, name, param)
    if param == error.param:
        return error
    message = param + error.message[len(error.param or "") :] if error.message.startswith(error.param or "") else ""
    return ApiError(error.code, message or error.message, param=param, retry_after_s=error.retry_after_s)


def _translate(body: MessagesBody, tools: MessageTools, left_out: dict[str, None]) -> dict[str, Any]:
    choice, parallel = translate_choice(body.tool_choice)
    fields: dict[str, Any] = {
        "model": body.model,
        "messages": translate_history(body.system, tools.messages, left_out),
        "stream": body.stream,
        "max_tokens": body.max_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k or None,
        "stop": body.stop_sequences or None,
        "tools": tools.tools or None,
        "tool_choice": choice if tools.tools else None,
        "parallel_tool_calls": parallel,
        "response_format": _read_format(body.output_config, body.output_format),
    }
    return {name: value for name, value in fields.items() if value is not None}
