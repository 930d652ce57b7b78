"""`POST /v1/messages`, inwards: from bytes to the one internal request, or one `ApiError` that names the field.

Known fields are checked strictly, by Anthropic's names, and translated into those of a chat completion, whose checks
follow; what they find is told by the client's names. What changes the answer and can't be honoured is refused. What
only asks for speed, a price or a place has no effect, and a note in the report says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError

from deployments.api.anthropic.messages_history import refuse, translate_history
from deployments.api.anthropic.messages_settings import (
    read_format,
    read_thinking,
    translate_choice,
    translate_tools,
    write_notes,
)
from deployments.api.openai_chat import (
    MESSAGES_MAX,
    MODEL_CHARS_MAX,
    STOPS_MAX,
    TOOLS_MAX,
    ChatCall,
    Strict,
    Text,
    TokenCount,
    build_call,
    make_field_error,
    parse_object,
)
from deployments.errors import ApiError
from reliability.steps import Steps

TOP_K_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesWanted:
    """What only the way out of a message must know. `thinking`: the client asked for thoughts, so it can read them."""

    thinking: bool = False


class MessagesBody(Strict):
    """The fields that this server reads."""

    model: str = Field(default="auto", min_length=1, max_length=MODEL_CHARS_MAX)
    messages: list[Any] = Field(min_length=1, max_length=MESSAGES_MAX)
    max_tokens: TokenCount | None = None
    system: str | list[Any] | None = None
    stream: bool | None = None
    temperature: float | None = Field(default=None, ge=0, le=1)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=0, le=TOP_K_MAX)
    stop_sequences: Annotated[list[Text], Field(max_length=STOPS_MAX)] | None = None
    tools: list[dict[str, Any]] | None = Field(default=None, max_length=TOOLS_MAX)
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    context_management: dict[str, Any] | None = None
    mcp_servers: list[Any] | None = None
    container: str | dict[str, Any] | None = None


FIELDS = frozenset(MessagesBody.model_fields)
# What the checks of a chat completion call a field, and what the client has called it.
NAMES: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"^tools\.(\d+)\.function\.parameters\b", r"tools.\1.input_schema"),
        (r"^tools\.(\d+)\.function\b", r"tools.\1"),
        (r"^tool_choice\.function\b", "tool_choice"),
        (r"^response_format\.json_schema\b", "output_config.format"),
        (r"^response_format\b", "output_config.format"),
        (r"^parallel_tool_calls\b", "tool_choice.disable_parallel_tool_use"),
        (r"^stop\b", "stop_sequences"),
    )
)


def parse_messages(raw: bytes, headers: Mapping[str, str], *, steps: Steps | None = None, **named: Any) -> ChatCall:
    """Parse one body; `named` is what `deployments.api.openai_chat.parse_chat` takes. Raises ApiError: `invalid_json`,
    `invalid_request`, `invalid_tools` or `unsupported`, with the field in `param`. OutOfSteps: its schemas take more
    than `steps` to compile; never where they are final."""
    changed: list[str] = []
    fields = parse_object(raw, changed)
    body = _validate(fields)
    translated = _translate(body)
    thinking = read_thinking(body.thinking)
    wanted = MessagesWanted(thinking=thinking.shown)
    notes = (*changed, *write_notes(fields, FIELDS))
    try:
        return build_call(
            translated,
            headers,
            body_bytes=len(raw),
            thinking=thinking.asked,
            names=fields,
            wanted=wanted,
            notes=notes,
            steps=steps,
            **named,
        )
    except ApiError as error:
        raise rename(error) from None


def rename(error: ApiError) -> ApiError:
    """Return the error with the field by the name that the client knows, in `param` and at the head of its words."""
    param = error.param
    if param is None:
        return error
    for pattern, name in NAMES:
        param = pattern.sub(name, param)
    if param == error.param:
        return error
    message = param + error.message[len(error.param or "") :] if error.message.startswith(error.param or "") else ""
    return ApiError(error.code, message or error.message, param=param, retry_after_s=error.retry_after_s)


def _validate(fields: dict[str, Any]) -> MessagesBody:
    try:
        body = MessagesBody.model_validate({name: fields[name] for name in FIELDS if name in fields})
    except ValidationError as error:
        raise make_field_error(error) from None
    for name in ("mcp_servers", "container"):
        if getattr(body, name):
            raise refuse(name, "this server runs no tools itself: it can't honour this", "unsupported")
    return body


def _translate(body: MessagesBody) -> dict[str, Any]:
    choice, parallel = translate_choice(body.tool_choice)
    fields: dict[str, Any] = {
        "model": body.model,
        "messages": translate_history(body.system, body.messages),
        "stream": body.stream,
        "max_tokens": body.max_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p or None,
        "top_k": body.top_k or None,
        "stop": body.stop_sequences or None,
        "tools": translate_tools(body.tools) if body.tools else None,
        "tool_choice": choice if body.tools else None,
        "parallel_tool_calls": parallel,
        "response_format": read_format(body.output_config, body.output_format),
    }
    return {name: value for name, value in fields.items() if value is not None}
