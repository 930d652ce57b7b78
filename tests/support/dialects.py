"""One conversation in three dialects, each by its own real client, and what came back in one form.

A conversation is written as messages of a chat completion. `Told` is what a client was told, however that is spelt:
text, calls, why it ended, tokens, an error's code, and the request's report.
"""

import itertools
import json
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai

from tests.support.http_asking import ask
from tests.support.serving import Server, until

Messages = list[dict[str, Any]]
ROUTES = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
DEEDS = ("outcome", "tier", "escalated_from", "escalation_reason", "loop", "repairs")


@dataclass(kw_only=True)
class Told:
    """What one client was told. `code`: of the error that came in place of an answer, or that ended it; `late`: the
    error came in a stream that had begun."""

    status: int = 200
    code: str | None = None
    late: bool = False
    text: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    finish: str | None = None
    tokens: tuple[int, int, int] | None = None
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> dict[str, Any]:
        """What the server did, by its own report."""
        attempts = [(one["tier"], one["fault"], one["flaw"]) for one in self.report["attempts"]]
        return {name: self.report[name] for name in DEEDS} | {"attempts": attempts}


def ask_in(dialect: str, server: Server, messages: Messages, *, stream: bool, **options: Any) -> Told:
    request_id = uuid.uuid4().hex
    headers = {"x-request-id": request_id, "X-MLX-Stack-Session": request_id}
    told = DIALECTS[dialect](server, messages, stream, headers, options)
    told.report = until(lambda: server.find(f"/v1/reliability/requests/{request_id}"), "the report is there")
    return told


def ask_in_all(server: Server, messages: Messages, **options: Any) -> dict[str, Told]:
    """Ask once in each dialect, all at the same time."""
    with ThreadPoolExecutor(len(DIALECTS)) as pool:
        asked = {one: pool.submit(ask_in, one, server, messages, **options) for one in DIALECTS}
    return {one: told.result() for one, told in asked.items()}


def write_body(dialect: str, messages: Messages, tools: Sequence[Any] = ()) -> dict[str, Any]:
    """The messages and the tools of a request, as a dialect spells them."""
    functions = [tool["function"] for tool in tools]
    if dialect == "messages":
        body = {"max_tokens": 4096, **_write_blocks(messages)}
        told = [{"input_schema" if key == "parameters" else key: one[key] for key in one} for one in functions]
    elif dialect == "responses":
        body = {"input": _write_items(messages)}
        told = [{"type": "function", **one} for one in functions]
    else:
        body, told = {"messages": messages}, list(tools)
    return body | ({"tools": told} if tools else {})


def _read_error(error: openai.APIError | anthropic.APIError, told: Told) -> None:
    body: Any = error.body or {}
    body = body.get("error", body)
    told.code, told.late = body["code"], told.status == 200


Fields = dict[str, Any]


def _ask_chat(server: Server, messages: Messages, stream: bool, headers: Fields, options: Fields) -> Told:
    usage = {"stream_options": {"include_usage": True}} if stream else {}
    got = ask(server, messages, stream=stream, headers=headers, **usage, **options)
    told = Told(status=got.status, code=got.code, late=bool(got.error) and got.status == 200, text=got.text)
    if got.completion is not None:
        told.calls, told.finish, used = got.calls, got.choice.finish_reason, got.completion.usage
        told.tokens = (used.prompt_tokens, used.completion_tokens, used.prompt_tokens_details.cached_tokens)
    return told


STOPS = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}


def _ask_messages(server: Server, messages: Messages, stream: bool, headers: Fields, options: Fields) -> Told:
    told = Told()
    fields = {"model": "auto", **write_body("messages", messages, options.get("tools", ())), "extra_headers": headers}
    fields |= {"tool_choice": {"type": "any"}} if options.get("tool_choice") == "required" else {}
    with anthropic.Anthropic(base_url=server.url, api_key="sk-test", max_retries=0, timeout=60.0) as client:
        try:
            message = _gather_message(client, fields, told) if stream else client.messages.create(**fields)
        except anthropic.APIStatusError as error:
            told.status = error.status_code
            _read_error(error, told)
            return told
    told.text = "".join(block.text for block in message.content if block.type == "text")
    told.calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
    told.finish, used = STOPS[message.stop_reason or ""], message.usage
    cached = used.cache_read_input_tokens or 0
    told.tokens = (used.input_tokens + cached, used.output_tokens, cached)
    return told


def _gather_message(client: anthropic.Anthropic, fields: dict[str, Any], told: Told) -> Any:
    with client.messages.stream(**fields) as events:
        for event in events:
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                told.text += event.delta.text
        return events.get_final_message()


def _write_blocks(messages: Messages) -> dict[str, Any]:
    """The messages in blocks: the results of one answer's calls are one user message."""
    system = [m["content"] for m in messages if m["role"] == "system"]
    out = []
    for role, group in itertools.groupby((m for m in messages if m["role"] != "system"), lambda m: m["role"]):
        if role == "tool":
            blocks = [{"type": "tool_result", "tool_use_id": m["tool_call_id"], "content": m["content"]} for m in group]
            out.append({"role": "user", "content": blocks})
            continue
        out += [{"role": role, "content": _write_answer(m) if role == "assistant" else m["content"]} for m in group]
    return {"messages": out} | ({"system": "\n".join(system)} if system else {})


def _write_answer(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": message["content"]}] if message.get("content") else []
    return text + [
        {"type": "tool_use", "id": call["id"], "name": one["name"], "input": json.loads(one["arguments"])}
        for call in message.get("tool_calls") or ()
        for one in (call["function"],)
    ]


def _ask_responses(server: Server, messages: Messages, stream: bool, headers: Fields, options: Fields) -> Told:
    told = Told()
    fields = {"model": "auto", "store": False, **write_body("responses", messages, options.get("tools", ()))}
    fields |= {"tool_choice": options["tool_choice"]} if "tool_choice" in options else {}
    with server.client() as client:
        try:
            made: Any = client.responses.create(**fields, stream=stream, extra_headers=headers)
            response = _gather_response(made, told) if stream else made
        except openai.APIStatusError as error:
            told.status = error.status_code
            _read_error(error, told)
            return told
    if response.status == "failed":
        told.code, told.late = response.error.mlx_stack_code, True
        return told
    told.text = response.output_text
    told.calls = [(i.name, json.loads(i.arguments)) for i in response.output if i.type == "function_call"]
    told.finish = "tool_calls" if told.calls else "stop"
    if response.status == "incomplete":
        told.finish = {"max_output_tokens": "length"}.get(response.incomplete_details.reason, "content_filter")
    used = response.usage
    told.tokens = (used.input_tokens, used.output_tokens, used.input_tokens_details.cached_tokens)
    return told


def _gather_response(events: Any, told: Told) -> Any:
    response = None
    for event in events:
        if event.type == "response.output_text.delta":
            told.text += event.delta
        response = getattr(event, "response", None) or response
    return response


def _write_items(messages: Messages) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            call_id, output = message["tool_call_id"], message["content"]
            items.append({"type": "function_call_output", "call_id": call_id, "output": output})
            continue
        if message.get("content"):
            items.append({"role": message["role"], "content": message["content"]})
        calls = message.get("tool_calls") or ()
        items += [{"type": "function_call", "call_id": call["id"], **call["function"]} for call in calls]
    return items


DIALECTS = {
    "chat": _ask_chat,
    "messages": _ask_messages,
    "responses": _ask_responses,
}
