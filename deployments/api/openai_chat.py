"""`POST /v1/chat/completions`, inwards: from bytes to a `ChatRequest`, or one `ApiError` that names the field.

Known fields are checked strictly ("5" is no number); unknown ones are kept and go to hosted tiers. Legacy `functions`
and `function_call` become `tools` and `tool_choice`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict, TypeVar, Unpack

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from deployments.api.forms.foreign_parts import read_foreign_parts
from deployments.api.forms.tool_forms import (
    CHOICE_WORDS,
    leave_out_served,
    nest_choice,
    nest_tool,
    read_kind,
    translate_choice,
)
from deployments.api.headers import find_session, may_keep, name_beginning, split_helper
from deployments.api.past_calls import name_past_calls
from deployments.api.past_messages import check_parts, drop_unreadable
from deployments.api.thinking_wish import ThinkingWish, read_thinking_wish
from deployments.errors import ApiError, refuse
from deployments.work.json_text import VALUES_MAX, has_more_values, is_too_deep, join_arguments, read_json
from deployments.work.wire import Named
from reliability.answer.wanted_form import WantedForm, read_wanted_form
from reliability.context_edits import Edit
from reliability.sessions import Trail, read_trail
from reliability.steps import OutOfSteps, Steps
from reliability.summaries import Compaction
from reliability.tools import BadSchema, BadTools, ToolBox, build_toolbox, parse_choice
from reliability.types import ChatRequest

MESSAGES_MAX = 10_000
TOOLS_MAX = 512
STOPS_MAX = 16
_TOP_LOGPROBS_MAX = 20
MODEL_CHARS_MAX = 256
# A top_p of 0 asks for the most likely token, as a very small one does; mlx-lm takes 0 for "off", vLLM for a mistake.
_TOP_P_MIN = 1e-6
# Of objects and lists in one another. Whoever visits, encodes or dumps the body further in has bounds of their own, the
# nearest at about 250, and would break in the middle of the work.
DEPTH_MAX = 100
_TOO_LARGE = "the schemas are larger than this server takes"

Text = Annotated[str, Field(min_length=1)]
# A token cap of this size is no cap; larger numbers are refused before they meet C code.
TokenCount = Annotated[int, Field(ge=1, le=100_000_000)]
ModelName = Annotated[
    str,
    Field(min_length=1, max_length=MODEL_CHARS_MAX),
    BeforeValidator(lambda value: "auto" if value is None else value),
]
# LM Studio and llama.cpp call no cap -1, and so do the requests that people copy from their pages.
_TokenCap = Annotated[TokenCount | None, BeforeValidator(lambda value: None if value == -1 else value)]


class Strict(BaseModel):
    """Strict types; unknown keys are kept, since clients send more than the documentation names."""

    model_config = ConfigDict(extra="allow", strict=True)


Body = TypeVar("Body", bound=Strict)


class ChatMessage(Strict):
    """One message. What its parts mean is each tier's business; that they have the right form is checked here."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class StreamOptions(Strict):
    """`include_usage` asks for a last chunk with the usage."""

    include_usage: bool | None = None


class ChatBody(Strict):
    """The fields that this server reads."""

    model: ModelName = "auto"
    messages: list[ChatMessage] = Field(min_length=1, max_length=MESSAGES_MAX)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: _TokenCap = None
    max_completion_tokens: _TokenCap = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-(2**63), le=2**63 - 1)
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=_TOP_LOGPROBS_MAX)
    stop: Text | Annotated[list[Text], Field(max_length=STOPS_MAX)] | None = None
    tools: list[dict[str, Any]] | None = Field(default=None, max_length=TOOLS_MAX)
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    functions: list[dict[str, Any]] | None = Field(default=None, max_length=TOOLS_MAX)
    function_call: str | dict[str, Any] | None = None


# What pydantic puts into the path for a choice of a union, beside names such as `constrained-str` or `list[dict]`.
_CHOICES = frozenset({"str", "dict", "list", "int", "float"})
# Fields that `ChatRequest` has under its own name, or that end at the HTTP boundary.
_READ_HERE = frozenset(ChatBody.model_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChatWanted:
    """What only the way out of a chat completion must know. `legacy_functions`: the answer has `function_call`."""

    include_usage: bool = False
    legacy_functions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall:
    """One parsed call of any dialect. `trail`: what the request shows of its conversation, where it names no session.
    `wanted`: what its dialect's way out must know. `notes`: what has no effect here, for the report. `form`: what the
    answer's text must be. `edits`: what its client wants left out of old turns; None: nothing. `compaction`: when a
    summary is to stand for them. `shorten`: its prompt may be shortened, whatever the policy."""

    model: str
    stream: bool
    request: ChatRequest
    toolbox: ToolBox
    trail: Trail | None
    wanted: Named = _ChatWanted()
    notes: tuple[str, ...] = ()
    form: WantedForm | None = None
    edits: tuple[Edit, ...] | None = None
    compaction: Compaction | None = None
    shorten: bool = False


class ParseTerms(TypedDict):
    """What the parser of each dialect takes beside the body. `tokens_max` caps the output, and is its default."""

    request_id: str
    tokens_max: int
    timeout_s: float
    steps: NotRequired[Steps]


def parse_chat(raw: bytes, headers: Mapping[str, str], **terms: Unpack[ParseTerms]) -> ChatCall:
    """Parse one body. Raises ApiError, with the field in `param`: `invalid_json`, `invalid_request`, `invalid_tools`,
    `unsupported`; OutOfSteps: its schemas take more than `steps` to compile, unless those are final."""
    fields, notes = parse_object(raw)
    return build_call(fields, headers, body_bytes=len(raw), notes=tuple(notes), **terms)


def build_call(
    fields: dict[str, Any],
    headers: Mapping[str, str],
    *,
    body_bytes: int,
    thinking: ThinkingWish | None = None,
    names: Mapping[str, Any] | None = None,
    wanted: Any = None,
    notes: tuple[str, ...] = (),
    keep: bool | None = None,
    **terms: Unpack[ParseTerms],
) -> ChatCall:
    """Build the call of a chat completion's fields. A dialect that translates into them brings its own fields for the
    session's name (`names`), and what it says of `keep` and `thinking`. Raises what `parse_chat` does."""
    left_out: dict[str, None] = {}
    body, steps = _read_fields(fields, left_out), terms.get("steps") or Steps(sys.maxsize)
    tools, choice, toolbox, kept_out = _read_tools(body, steps)
    messages, changed = join_arguments(read_foreign_parts(fields["messages"], left_out))
    asked = body.max_completion_tokens or body.max_tokens
    session, shared = find_session(headers, fields if names is None else names)
    own, parent = split_helper(headers, session or name_beginning(headers, messages))
    request = ChatRequest(
        request_id=terms["request_id"],
        session_id=own,
        parent=parent,
        session_shared=shared,
        messages=name_past_calls(messages),
        max_tokens=min(asked or terms["tokens_max"], terms["tokens_max"]),
        max_tokens_named=asked is not None,
        timeout_s=terms["timeout_s"],
        tools=tools,
        tool_choice=choice,
        response_format=_check_response_format(body),
        keep=may_keep(headers, fields) if keep is None else keep,
        **_read_sampling(body, thinking or read_thinking_wish(fields)),
        body_bytes=body_bytes,
        extra={key: value for key, value in fields.items() if key not in _READ_HERE and value is not None},
    )
    # Where no keys are checked their bearers are kept apart.
    trail = None if session else read_trail(messages, headers.get("authorization") or headers.get("x-api-key") or "")
    return ChatCall(
        model=body.model,
        stream=bool(body.stream),
        request=request,
        toolbox=toolbox,
        trail=trail,
        wanted=wanted or _read_wanted(body),
        notes=tuple(dict.fromkeys((*notes, *left_out, *changed, *kept_out))),
        form=_read_form(request.response_format, steps),
    )


def _read_wanted(body: ChatBody) -> _ChatWanted:
    usage = bool(body.stream_options and body.stream_options.include_usage)
    return _ChatWanted(include_usage=usage, legacy_functions=body.functions is not None)


def _read_sampling(body: ChatBody, wish: ThinkingWish) -> dict[str, Any]:
    return {
        "thinking": wish.asked,
        "thinking_tokens_max": wish.tokens_max,
        # A legacy answer has room for one call.
        "parallel_tool_calls": body.parallel_tool_calls if body.functions is None else False,
        "stop": (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        "seed": body.seed,
        "temperature": body.temperature,
        "top_p": None if body.top_p is None else max(body.top_p, _TOP_P_MIN),
        "top_logprobs": (body.top_logprobs or 0) if body.logprobs else None,
        "streamed": bool(body.stream),
    }


def parse_object(raw: bytes) -> tuple[dict[str, Any], list[str]]:
    """Parse a body that is a JSON object within the bounds; also return what was changed in it. Raises `ApiError`:
    `invalid_json`, `invalid_request`."""
    notes: list[str] = []
    if has_more_values(raw):
        message = f"the body holds more than {VALUES_MAX} values: texts, numbers, lists, objects, each with its key"
        raise ApiError("invalid_request", message)
    try:
        value = read_json(raw, notes=notes)
    except ValueError as error:
        raise ApiError("invalid_json", f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise ApiError("invalid_request", f"the body is nested deeper than {DEPTH_MAX} levels") from None
    if not isinstance(value, dict):
        raise ApiError("invalid_json", "the body must be a JSON object")
    # No deeper than it has brackets: most bodies need not be searched.
    if raw.count(b"{") + raw.count(b"[") > DEPTH_MAX and is_too_deep(value, DEPTH_MAX):
        raise ApiError("invalid_request", f"the body is nested deeper than {DEPTH_MAX} levels")
    return value, notes


def read_body(model: type[Body], fields: Mapping[str, Any]) -> Body:
    """Read the fields that a model of a body knows. Raises `ApiError`: `invalid_request`, with the wrong field."""
    try:
        return model.model_validate({name: fields[name] for name in model.model_fields if name in fields})
    except ValidationError as error:
        raise _make_field_error(error) from None


def _read_fields(fields: dict[str, Any], notes: dict[str, None]) -> ChatBody:
    """Read the fields; those messages of the past that are none are replaced in them, with notes. Raises `ApiError`."""
    try:
        return _validate(fields)
    except ApiError as error:
        if not (error.param or "").startswith("messages."):
            raise
    fields["messages"] = drop_unreadable(fields["messages"], _check_message, notes)
    return _validate(fields)


def _validate(fields: Mapping[str, Any]) -> ChatBody:
    body = read_body(ChatBody, fields)
    if body.n not in (None, 1):
        raise ApiError("invalid_request", f"n must be 1: this server gives one answer (got {body.n})", param="n")
    if body.top_logprobs and not body.logprobs:
        raise ApiError("invalid_request", "top_logprobs needs logprobs to be true", param="top_logprobs")
    _read_choice(body)
    for at, message in enumerate(fields["messages"]):
        check_parts(message, f"messages.{at}")
    return body


def _check_message(message: Any, path: str) -> None:
    """Raise `ApiError` for a message that is none, with the path of what is wrong."""
    if not isinstance(message, dict):
        raise refuse(path, "an object is needed")
    try:
        read_body(ChatMessage, message)
    except ApiError as error:
        raise refuse(f"{path}.{error.param}", error.message.partition(": ")[2]) from None
    check_parts(message, path)


def _make_field_error(error: ValidationError) -> ApiError:
    """Name the first wrong field as `messages.0.role`. Of a union's choices the one counts that has the value's own
    form."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    first, *others = found
    at = len(first["loc"])
    if _is_choice(first["loc"][-1]):
        beside = [one for one in others if one["loc"][: at - 1] == first["loc"][:-1]]
        first = next((one for one in beside if len(one["loc"]) > at or not one["type"].endswith("_type")), first)
    path = [str(part) for part in first["loc"] if not _is_choice(part)]
    return refuse(".".join(path), first["msg"])


def _is_choice(part: str | int) -> bool:
    """Tell whether a part of a path is the name of a union's choice, and no key of the body."""
    return isinstance(part, str) and not (part.isidentifier() and part.islower() and part not in _CHOICES)


def _check_response_format(body: ChatBody) -> Mapping[str, Any] | None:
    value = body.response_format
    if value is None or value.get("type") == "text":
        return None
    if value.get("type") not in ("json_object", "json_schema"):
        raise refuse("response_format.type", "text, json_object or json_schema is needed")
    given, beside = value.get("json_schema"), value.get("schema")
    if given is None and isinstance(beside, dict):  # as llama.cpp, Together and Fireworks take it
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": beside}}
    schema = given.get("schema") if isinstance(given, dict) else None
    if value["type"] == "json_schema" and not isinstance(schema, dict):
        raise refuse("response_format.json_schema.schema", "a schema is needed")
    return value


def _read_form(response_format: Mapping[str, Any] | None, steps: Steps) -> WantedForm | None:
    """Read the form that is asked for. A schema that no tier could use is the client's mistake, as in a tool."""
    found: WantedForm | BadSchema | None
    try:
        found = read_wanted_form(response_format, steps)
    except OutOfSteps:
        if not steps.final:
            raise
        found = BadSchema("", _TOO_LARGE)
    if isinstance(found, BadSchema):
        bad = BadTools("/response_format/json_schema/schema" + found.path, found.message)
        raise _make_tools_error("invalid_request", bad)
    return found


def _read_choice(body: ChatBody) -> None:
    """Read a choice of another dialect, in the words of chat completions from here on."""
    choice = body.tool_choice
    if isinstance(choice, dict) and choice.get("type") == "required":
        choice = {**choice, "type": "any"}
    if isinstance(choice, dict) and choice.get("type") in (*CHOICE_WORDS, "tool") and "function" not in choice:
        body.tool_choice, parallel = translate_choice(choice)
        body.parallel_tool_calls = body.parallel_tool_calls if parallel is None else parallel
    elif isinstance(choice, dict):
        body.tool_choice = dict(nest_choice(choice))
    elif isinstance(choice, str):
        body.tool_choice = CHOICE_WORDS.get(choice, choice)


def _read_tools(
    body: ChatBody, steps: Steps
) -> tuple[tuple[Mapping[str, Any], ...], str | Mapping[str, Any] | None, ToolBox, tuple[str, ...]]:
    if body.tools is not None and body.functions is not None:
        raise refuse("functions", "send tools or functions, not both")
    own, notes = leave_out_served(body.tools or ())
    own = [(place, read_kind(tool, f"tools.{place}")) for place, tool in own]
    tools = tuple(tool for _, tool in own)
    choice = body.tool_choice
    if body.functions is not None:
        tools = tuple({"type": "function", "function": function} for function in body.functions)
        choice = body.function_call
        if isinstance(choice, dict):
            choice = {"type": "function", "function": choice}
    try:
        toolbox = build_toolbox([tool for _, tool in own], body.functions, steps)
    except OutOfSteps:
        if not steps.final:
            raise
        toolbox = BadTools("/tools", _TOO_LARGE)
    if isinstance(toolbox, BadTools):
        places = [str(place) for place, _ in own]
        path = re.sub(r"^/tools/(\d+)", lambda found: f"/tools/{places[int(found[1])]}", toolbox.path)
        raise _make_tools_error("invalid_tools", BadTools(path, toolbox.message))
    wrong = parse_choice(choice, toolbox)
    if isinstance(wrong, BadTools):
        raise _make_tools_error("invalid_request", wrong)
    return tuple(nest_tool(tool) for tool in tools), choice if tools else None, toolbox, notes


def _make_tools_error(code: str, bad: BadTools) -> ApiError:
    return refuse(bad.path.strip("/").replace("/", "."), bad.message, code)
