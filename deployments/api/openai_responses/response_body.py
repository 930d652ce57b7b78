"""`POST /v1/responses`, inwards: from bytes to a `ChatCall`, or one `ApiError` that names the client's own field.

Fields that nothing here can act on are echoed and noted in the report; those that would change the answer are refused;
unknown ones go to hosted tiers. Errors of a chat completion's fields are translated back (`translate_error`).
Invariants: no field is dropped without a word; no error names a field of the translation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Unpack

import orjson
from pydantic import Field

from deployments.api.headers import may_keep
from deployments.api.openai_chat import (
    MESSAGES_MAX,
    TOOLS_MAX,
    ChatCall,
    ModelName,
    ParseTerms,
    Strict,
    TokenCount,
    build_call,
    parse_object,
    read_body,
)
from deployments.api.openai_responses.item_ids import make_tag
from deployments.api.openai_responses.response_items import ItemHistory
from deployments.api.openai_responses.response_tools import ToolsRead, read_tools
from deployments.api.openai_responses.stored_record import (
    RECORD_BYTES_MAX,
    Recalled,
    add_chain,
    check_recalled,
    complete_items,
    list_user_items,
    order_summary,
    resolve_items,
    split_trigger,
)
from deployments.errors import ApiError, refuse
from deployments.work.json_text import write_json

_METADATA_MAX = 16
_NAME_CHARS_MAX, _NAMES_MAX = 60, 16
Short = Annotated[str, Field(max_length=1024)]


class ReasoningField(Strict):
    """How hard the model should think, and whether it should tell."""

    effort: Short | None = None
    summary: Short | None = None
    generate_summary: Short | None = None


class TextField(Strict):
    """The form of the answer's text."""

    format: dict[str, Any] | None = None
    verbosity: Short | None = None


class ResponseBody(Strict):
    """The fields of the API that this server reads."""

    model: ModelName = "auto"
    input: str | list[Any] | None = None
    instructions: str | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    store: bool | None = None
    previous_response_id: Short | None = None
    max_output_tokens: TokenCount | None = None
    max_tool_calls: int | None = Field(default=None, ge=1, le=2**31)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    parallel_tool_calls: bool | None = None
    tools: list[dict[str, Any]] | None = Field(default=None, max_length=TOOLS_MAX)
    tool_choice: str | dict[str, Any] | None = None
    text: TextField | None = None
    reasoning: ReasoningField | None = None
    include: list[Short] | None = Field(default=None, max_length=64)
    metadata: dict[str, Annotated[str, Field(max_length=512)]] | None = Field(default=None, max_length=_METADATA_MAX)
    truncation: Short | None = None
    user: Short | None = None
    prompt_cache_key: Short | None = None
    prompt_cache_retention: Short | None = None
    safety_identifier: Short | None = None
    service_tier: Short | None = None
    background: bool | None = None
    prompt: Any = None
    conversation: Any = None
    client_metadata: dict[str, Any] | None = None


_READ_HERE = frozenset(ResponseBody.model_fields)
# They have the same name and meaning in chat completions, and go on to whoever heeds them.
_PASSED_ON = (
    *("temperature", "top_p", "parallel_tool_calls", "stream", "user", "prompt_cache_key", "safety_identifier"),
    *("service_tier", "prompt_cache_retention", "presence_penalty", "frequency_penalty"),
)
# What this server can't do at all, and why.
REFUSED = {
    "background": "responses can't be made in the background here",
    "prompt": "this server keeps no prompt templates: send the text itself",
    "conversation": "this server keeps no conversations: use previous_response_id, or send the whole history",
}
# Responses' own fields, which no tier can read: no other API has them.
_NO_EFFECT = ("access_programs", "background_options", "context_management", "image")
# Fields of chat completions, for whoever mixes the two up: the names that they have here.
_OF_CHAT = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "functions": "tools",
    "function_call": "tool_choice",
    "logprobs": 'include: ["message.output_text.logprobs"]',
}
# What OpenAI echoes of a function tool that leaves it out.
_FUNCTION = {"description": None, "parameters": None, "strict": None}
LOGPROBS, _SEALED = "message.output_text.logprobs", "reasoning.encrypted_content"
_INCLUDABLE = frozenset({
    LOGPROBS, _SEALED, "file_search_call.results", "web_search_call.results", "web_search_call.action.sources",
    "message.input_image.image_url", "computer_call_output.output.image_url", "code_interpreter_call.outputs",
})  # fmt: skip
# The fields that a response repeats as they are, with OpenAI's defaults.
_ECHOED: dict[str, Any] = {
    **dict.fromkeys(("instructions", "max_output_tokens", "max_tool_calls", "previous_response_id")),
    **dict.fromkeys(("prompt_cache_key", "safety_identifier")),
    **dict.fromkeys(("temperature", "top_p"), 1.0),
    "metadata": {},
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "top_logprobs": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the way out must know. `echo`: the fields of the response that repeat the request, as JSON; `custom`: the
    tools whose calls are free text; `namespaces`: those that stand in one, with it and their names there; `searches`:
    the client runs `tool_search`; `sealed`: reasoning goes out in its opaque form, too; `summary`: as a summary.
    `items`: the input as it is stored, None where nothing is; `previous`: the response that this one continues.
    `compacts`: the answer is the summary that stands for the conversation; `users`: the user's messages beside it."""

    tag: str
    echo: Mapping[str, bytes]
    custom: frozenset[str] = frozenset()
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    searches: bool = False
    sealed: bool = False
    summary: bool = False
    items: bytes | None = None
    previous: str | None = None
    compacts: bool = False
    users: bytes = b"[]"


def parse_response(
    raw: bytes,
    headers: Mapping[str, str],
    *,
    recalled: Recalled | None = None,
    compacts: bool = False,
    **terms: Unpack[ParseTerms],
) -> ChatCall:
    """Parse one body. It takes and raises what `parse_chat` does; `recalled`: what it refers to; `compacts`: it asks
    for a summary. Raises `NeedsRecall`: it refers to stored responses, and `recalled` is None."""
    fields, changed = parse_object(raw)
    body = _validate(fields)
    notes = [*changed, *_list_notes(body, fields)]
    recalled = check_recalled(body.previous_response_id, body.input, recalled)
    history = ItemHistory()
    given, triggered = split_trigger(resolve_items(body.input, recalled, history.notes))
    _read_input(history, body, given, recalled)
    declared = [*(body.tools or ()), *history.declared.values()]
    tools = read_tools(declared, body.tool_choice).add(history.found)
    chat = _translate(fields, body, history.close(), tools)
    wanted = _build_wanted(body, tools, given, compacts=compacts or triggered)
    if wanted.compacts:
        chat = order_summary(chat) | {"stream": body.stream and not compacts}
        wanted = replace(wanted, users=write_json(list_user_items(recalled.chain, given, wanted.tag)))
        notes += ["store: a summary isn't kept"] if body.store else []
    elif body.store is not False and wanted.items is None:
        notes.append(f"store: the request is over {RECORD_BYTES_MAX >> 20} MiB, so its response isn't kept")
    try:
        call = build_call(
            chat,
            headers,
            body_bytes=len(raw) + recalled.size,
            names=fields if recalled.session is None else {"conversation": recalled.session},
            keep=may_keep(headers, fields),
            wanted=wanted,
            notes=(*notes, *tools.notes, *history.notes),
            **terms,
        )
    except ApiError as error:
        raise translate_error(error, tools.places) from None
    return replace(call, shorten=wanted.compacts, request=replace(call.request, searched=tools.searched))


def _validate(fields: dict[str, Any]) -> ResponseBody:
    for name, why in REFUSED.items():
        if fields.get(name) not in (None, False):
            raise refuse(name, why, "unsupported")
    for name, here in _OF_CHAT.items():
        if fields.get(name) is not None:
            raise refuse(name, f"a field of chat completions; here it is {here}")
    body = read_body(ResponseBody, fields)
    for place, name in enumerate(body.include or ()):
        if name not in _INCLUDABLE:
            raise refuse(f"include.{place}", f"one of {', '.join(sorted(_INCLUDABLE))} is needed")
    if body.truncation not in (None, "auto", "disabled"):
        raise refuse("truncation", "auto or disabled is needed")
    return body


def _list_notes(body: ResponseBody, fields: Mapping[str, Any]) -> list[str]:
    include, inner = body.include or (), (body.reasoning and body.reasoning.model_extra) or {}
    unread = [f"reasoning.{name[:_NAME_CHARS_MAX]}" for name, value in inner.items() if value is not None]
    ignored = [name for name in _NO_EFFECT if fields.get(name) is not None]
    found = [f"{name} has no effect here" for name in (*ignored, *unread[:_NAMES_MAX])]
    found += [f"include: {name} has no effect here" for name in include if name not in (LOGPROBS, _SEALED)]
    if body.top_logprobs and LOGPROBS not in include:
        found.append(f"top_logprobs has no effect without {LOGPROBS} in include")
    if body.truncation == "auto":
        found.append("truncation: auto has no effect here; a prompt that is too long is refused")
    if body.max_tool_calls is not None:
        found.append("max_tool_calls has no effect here: it bounds the calls of tools that the server runs")
    if _wants_summary(body):
        found.append("reasoning.summary: reasoning is given as it is, where a model shows any; it isn't summarized")
    return found


def _wants_summary(body: ResponseBody) -> bool:
    asked = body.reasoning and (body.reasoning.summary or body.reasoning.generate_summary)
    return bool(asked) and asked != "none"


def _read_input(history: ItemHistory, body: ResponseBody, given: str | Sequence[Any], recalled: Recalled) -> None:
    if body.instructions:
        history.messages.append({"role": "system", "content": body.instructions})
    add_chain(history, recalled)
    if isinstance(given, str):
        history.add([{"role": "user", "content": given}], "input")
    elif len(given) > MESSAGES_MAX - 2:
        raise refuse("input", f"there may be at most {MESSAGES_MAX - 2} items")
    elif not given and not recalled.chain:
        raise refuse("input", "a text or a list of items is needed")
    else:
        history.add(given, "input")


def _translate(
    fields: Mapping[str, Any], body: ResponseBody, messages: list[dict[str, Any]], tools: ToolsRead
) -> dict[str, Any]:
    """Write the request as a chat completion's; the fields that the API doesn't know come first."""
    own = (*_READ_HERE, *_OF_CHAT, *_NO_EFFECT)
    chat = {name: value for name, value in fields.items() if name not in own}
    chat |= {name: value for name in _PASSED_ON if (value := getattr(body, name)) is not None}
    chat |= {"model": body.model, "messages": messages}
    if body.max_output_tokens is not None:
        chat["max_completion_tokens"] = body.max_output_tokens
    if tools.tools:
        chat |= {"tools": tools.tools, "tool_choice": tools.choice}
    if body.reasoning is not None and body.reasoning.effort is not None:
        chat["reasoning_effort"] = body.reasoning.effort
    if LOGPROBS in (body.include or ()):
        chat |= {"logprobs": True, "top_logprobs": body.top_logprobs or 0}
    if body.text is not None:
        chat |= _translate_text(body.text)
    return chat


def _translate_text(text: TextField) -> dict[str, Any]:
    chat: dict[str, Any] = {} if text.verbosity is None else {"verbosity": text.verbosity}
    form = text.format or {"type": "text"}
    kind = form.get("type")
    if kind == "text":
        return chat
    if kind == "json_object":
        return chat | {"response_format": {"type": "json_object"}}
    if kind != "json_schema":
        raise refuse("text.format.type", "text, json_object or json_schema is needed")
    if not isinstance(form.get("name"), str) or not form["name"]:
        raise refuse("text.format.name", "a name is needed")
    given = {name: form[name] for name in ("name", "schema", "strict", "description") if form.get(name) is not None}
    return chat | {"response_format": {"type": "json_schema", "json_schema": given}}


def _build_wanted(body: ResponseBody, tools: ToolsRead, given: str | Sequence[Any], *, compacts: bool) -> Wanted:
    tag = make_tag()
    echo = _write_echo(body)
    items = None if body.store is False or compacts else write_json(complete_items(given, tag))
    if items is not None and len(items) + sum(map(len, echo.values())) > RECORD_BYTES_MAX:
        items = None
    return Wanted(
        tag=tag,
        echo=echo | {"store": orjson.dumps(items is not None)},
        custom=tools.custom,
        namespaces=tools.namespaces,
        searches=tools.searches,
        sealed=_SEALED in (body.include or ()),
        summary=_wants_summary(body),
        items=items,
        previous=body.previous_response_id,
        compacts=compacts,
    )


def _write_echo(body: ResponseBody) -> dict[str, bytes]:
    """Write the fields of the response object that repeat the request; where it leaves one out, OpenAI's default."""
    reasoning, text = body.reasoning or ReasoningField(), body.text or TextField()
    given = {name: getattr(body, name) for name in (*_ECHOED, "user")}
    echo = _ECHOED | {name: value for name, value in given.items() if value is not None}
    echo |= {
        "frequency_penalty": body.frequency_penalty or 0,
        "presence_penalty": body.presence_penalty or 0,
        "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary},
        "service_tier": body.service_tier or "default",
        "text": {"format": text.format or {"type": "text"}} | ({"verbosity": text.verbosity} if text.verbosity else {}),
        "tools": [_FUNCTION | tool if tool["type"] == "function" else tool for tool in body.tools or ()],
        "truncation": "disabled",
    }
    return {name: write_json(value) for name, value in sorted(echo.items())}


# Where the client has what the translation wrote; `functions` and `function_call` are no words of it.
_RENAMED = _OF_CHAT | {"logprobs": "include", "functions": "functions", "function_call": "function_call"}


def translate_error(error: ApiError, places: Sequence[str] | None = None) -> ApiError:
    """Translate an error. `places`: where each tool that was passed on stands in the client's `tools`."""
    if error.param is None:
        return error
    param = _translate_path(error.param, places)
    message = error.message
    if message.startswith(f"{error.param}:"):
        message = param + message[len(error.param) :]
    elif message.startswith(f"{(root := error.param.partition('.')[0])}:"):
        message = _translate_path(root) + message[len(root) :]
    return ApiError(error.code, message, param=param, retry_after_s=error.retry_after_s)


def _translate_path(path: str, places: Sequence[str] | None = None) -> str:
    parts = path.split(".")
    root = parts[0]
    if root == "messages" or root.startswith("messages["):
        return "input"
    if root == "tools":
        return _translate_tool(parts, places)
    if root == "tool_choice":
        return ".".join(part for part in parts if part not in ("function", "allowed_tools"))
    if root == "response_format":
        return ".".join(["text", "format", *(part for part in parts[1:] if part != "json_schema")])
    return ".".join([_RENAMED.get(root, root), *parts[1:]])


def _translate_tool(parts: Sequence[str], places: Sequence[str] | None) -> str:
    if places is None and len(parts) > 1 and parts[1].isdigit() and parts[2:3] != ["function"]:
        return ".".join(parts)  # the client's own form: it was translated before, where the places were known
    if len(parts) == 1 or places is None or not parts[1].isdigit() or int(parts[1]) >= len(places):
        return "tools"
    inner = parts[3:] if parts[2:3] == ["function"] else parts[2:]
    return ".".join(["tools", places[int(parts[1])], *inner])
