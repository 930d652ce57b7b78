"""`POST /v1/chat/completions`, outwards: events as one JSON answer, or as the chunks of a stream.

The answer's `model` is the tier that gave it: the tier's own model stands in `/v1/models` and in the report.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from deployments.api.dialect import Dialect
from deployments.api.openai_chat import ChatCall, parse_chat
from deployments.errors import ApiError
from deployments.reports.report import prefill_json, usage_json, write_prefill
from deployments.work.json_text import write_json
from reliability.types import (
    CallDelta,
    Event,
    Finish,
    FinishReason,
    Logprobs,
    Prefilled,
    Reasoning,
    Refusal,
    Text,
    TokenLogprob,
    Usage,
)

KEEP_ALIVE = b": keep-alive\n\n"
COMMENTS_PER_EVENT = 6
DONE = b"data: [DONE]\n\n"
FIELDS: dict[type[Event], str] = {Text: "content", Reasoning: "reasoning_content", Refusal: "refusal"}


def sse(value: Any) -> bytes:
    """Write one server-sent event."""
    return b"data: " + write_json(value) + b"\n\n"


@dataclass(slots=True, kw_only=True)
class _AnswerCollector:
    """Collects the events of an answer that isn't streamed."""

    answer_id: str
    created_s: int
    legacy_functions: bool
    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    tokens: list[TokenLogprob] = field(default_factory=list)

    def take(self, events: Iterable[Event]) -> None:
        """Add a batch of events."""
        for event in events:
            match event:
                case Text(text=text):
                    self.texts.append(text)
                case Reasoning(text=text):
                    self.reasoning.append(text)
                case Refusal(text=text):
                    self.refusals.append(text)
                case CallDelta():
                    add_call(self.calls, event)
                case Logprobs(tokens=tokens):
                    self.tokens += tokens

    def body(self, model: str, finish: Finish) -> bytes:
        """Write the complete chat completion."""
        choice = {
            "index": 0,
            "message": self._make_message(),
            "logprobs": _render_logprobs(self.tokens),
            "finish_reason": _choose_finish_reason(finish, legacy=self.legacy_functions),
        }
        return orjson.dumps(
            {
                "id": self.answer_id,
                "object": "chat.completion",
                "created": self.created_s,
                "model": model,
                "choices": [choice],
                "usage": usage_json(finish.usage or Usage(exact=False)),
            }
        )

    def _make_message(self) -> dict[str, Any]:
        text, refusal = "".join(self.texts), "".join(self.refusals) or None
        content = text or (None if self.calls or refusal else "")
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": refusal}
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        calls = [self.calls[index] for index in sorted(self.calls)]
        if calls and self.legacy_functions:
            message["function_call"] = calls[0]["function"]
        elif calls:
            message["tool_calls"] = calls
        return message


def add_call(calls: dict[int, dict[str, Any]], delta: CallDelta) -> None:
    """Add a piece of a call to the calls so far, which have the form of a chat completion's."""
    call = calls.setdefault(delta.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    if delta.id:
        call["id"] = delta.id
    if delta.name:
        call["function"]["name"] = delta.name
    call["function"]["arguments"] += delta.arguments


def _render_logprobs(tokens: Sequence[TokenLogprob]) -> dict[str, Any] | None:
    return {"content": render_tokens(tokens), "refusal": None} if tokens else None


def render_tokens(tokens: Iterable[TokenLogprob]) -> list[dict[str, Any]]:
    """Render the probabilities of tokens."""
    return [
        _render_token(token.raw, token.logprob) | {"top_logprobs": [_render_token(*other) for other in token.top]}
        for token in tokens
    ]


def _render_token(raw: bytes, logprob: float) -> dict[str, Any]:
    return {"token": raw.decode(errors="replace"), "logprob": logprob, "bytes": list(raw)}


def _choose_finish_reason(finish: Finish, *, legacy: bool) -> str:
    if legacy and finish.reason is FinishReason.TOOL_CALLS:
        return "function_call"
    return finish.reason.value


@dataclass(slots=True, kw_only=True)
class _ChunkWriter:
    """Writes the chunks of a stream. The first chunk names the role, as OpenAI's does."""

    answer_id: str
    created_s: int
    legacy_functions: bool
    include_usage: bool = False
    role_sent: bool = False
    silences: int = 0

    def chunks(self, model: str, events: Iterable[Event]) -> bytes:
        """Write one SSE event for each run of like events: a batch of ten text pieces is one delta. The probabilities
        of its tokens stand in the first one that has text."""
        batch = list(events)
        logprobs = _render_logprobs([token for event in batch if isinstance(event, Logprobs) for token in event.tokens])
        out: list[bytes] = []
        for delta in _merge_deltas(batch, legacy=self.legacy_functions):
            out.append(self._make_chunk(model, delta, logprobs if "content" in delta else None))
            logprobs = None if "content" in delta else logprobs
        if logprobs is not None:
            out.append(self._make_chunk(model, {"content": ""}, logprobs))
        return b"".join(out)

    def silence(self, model: str, prefill: Prefilled | None = None) -> bytes:
        """Write a comment, and now and then a chunk without a word."""
        if prefill is not None:
            return f": {write_prefill(prefill_json(prefill))}\n\n".encode()
        self.silences += 1
        return KEEP_ALIVE if self.silences % COMMENTS_PER_EVENT else self._make_chunk(model, {"content": ""}, None)

    def error(self, error: ApiError, report: dict[str, Any] | None) -> bytes:
        """Write the error's object as a frame; no `[DONE]` follows it."""
        return sse(error.body() | ({} if report is None else {"mlx_stack": report}))

    def last(self, model: str, finish: Finish, report: dict[str, Any]) -> bytes:
        """Write the finish reason, the usage where it was asked for, the report on the last of them, and `[DONE]`."""
        reason = _choose_finish_reason(finish, legacy=self.legacy_functions)
        end = self._make_body(
            model, [{"index": 0, "delta": self._add_role({}), "logprobs": None, "finish_reason": reason}]
        )
        if not self.include_usage:
            return sse(end | {"mlx_stack": report}) + DONE
        usage = self._make_body(model, [])
        usage["usage"] = usage_json(finish.usage or Usage(exact=False))
        return sse(end) + sse(usage | {"mlx_stack": report}) + DONE

    def _make_chunk(self, model: str, delta: dict[str, Any], logprobs: dict[str, Any] | None) -> bytes:
        choice = {"index": 0, "delta": self._add_role(delta), "logprobs": logprobs, "finish_reason": None}
        return sse(self._make_body(model, [choice]))

    def _make_body(self, model: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        body = {
            "id": self.answer_id,
            "object": "chat.completion.chunk",
            "created": self.created_s,
            "model": model,
            "choices": choices,
        }
        return body | {"usage": None} if self.include_usage else body

    def _add_role(self, delta: dict[str, Any]) -> dict[str, Any]:
        if self.role_sent:
            return delta
        self.role_sent = True
        return {"role": "assistant", "content": None if delta else ""} | delta


def _merge_deltas(events: Iterable[Event], *, legacy: bool) -> Iterable[dict[str, Any]]:
    key, pending = "", ""
    for event in events:
        if isinstance(event, Logprobs):
            continue  # they stand beside a delta, not in one
        kind = FIELDS.get(type(event), "")
        if kind != key and pending:
            yield {key: pending}
            pending = ""
        key = kind
        if isinstance(event, (Text, Reasoning, Refusal)):
            pending += event.text
        elif isinstance(event, CallDelta):
            yield _render_call_delta(event, legacy=legacy)
    if pending:
        yield {key: pending}


def _render_call_delta(event: CallDelta, *, legacy: bool) -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": event.arguments}
    if event.name:
        function = {"name": event.name} | function
    if legacy:
        return {"function_call": function}
    call: dict[str, Any] = {"index": event.index, "function": function}
    if event.id:
        call = {"index": event.index, "id": event.id, "type": "function", "function": function}
    return {"tool_calls": [call]}


def _begin_answer(call: ChatCall) -> dict[str, Any]:
    answer_id = f"chatcmpl-{uuid.uuid4().hex}"
    return {"answer_id": answer_id, "created_s": int(time.time()), "legacy_functions": call.wanted.legacy_functions}


CHAT = Dialect(
    name="chat",
    parse=parse_chat,
    collector=lambda call, _: _AnswerCollector(**_begin_answer(call)),
    writer=lambda call, _: _ChunkWriter(**_begin_answer(call), include_usage=call.wanted.include_usage),
    error_body=lambda error, _: error.body(),
)
