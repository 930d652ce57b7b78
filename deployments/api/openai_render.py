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
from deployments.api.openai_chat import parse_chat
from deployments.errors import ApiError
from deployments.reports.report import prefill_json, usage_json, write_prefill
from deployments.tiers.stream_matchers import merge_events
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
_FIELDS: dict[type[Event], str] = {Text: "content", Reasoning: "reasoning_content", Refusal: "refusal"}


def sse(value: Any) -> bytes:
    """Write one server-sent event."""
    return b"data: " + write_json(value) + b"\n\n"


@dataclass(kw_only=True)
class CollectedAnswer:
    """The events of an answer that isn't streamed, collected. `said`: its texts and refusals, in their order."""

    said: list[Text | Refusal] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    tokens: list[TokenLogprob] = field(default_factory=list)

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case Text() | Refusal():
                    self.said.append(event)
                case Reasoning(text=text):
                    self.reasoning.append(f"\n\n{text}" if event.anew else text)
                case CallDelta():
                    add_call(self.calls, event)
                case Logprobs(tokens=tokens):
                    self.tokens += tokens

    def list_calls(self) -> list[dict[str, Any]]:
        """List its calls, in the form of a chat completion's."""
        return [self.calls[index] for index in sorted(self.calls)]


@dataclass(kw_only=True)
class _ChatAnswer:
    """What a chat completion and the chunks of one have in common."""

    wanted: Any
    answer_id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created_s: int = field(default_factory=lambda: int(time.time()))

    def _make_body(self, kind: str, model: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.answer_id, "object": kind, "created": self.created_s, "model": model, "choices": choices}

    def _choose_finish_reason(self, finish: Finish) -> str:
        if self.wanted.legacy_functions and finish.reason is FinishReason.TOOL_CALLS:
            return "function_call"
        return finish.reason.value


@dataclass(kw_only=True)
class _AnswerCollector(_ChatAnswer, CollectedAnswer):
    def body(self, model: str, finish: Finish) -> bytes:
        choice = {
            "index": 0,
            "message": self._make_message(),
            "logprobs": _render_logprobs(self.tokens),
            "finish_reason": self._choose_finish_reason(finish),
        }
        usage = usage_json(finish.usage or Usage(exact=False))
        return orjson.dumps(self._make_body("chat.completion", model, [choice]) | {"usage": usage})

    def _make_message(self) -> dict[str, Any]:
        text = "".join(each.text for each in self.said if isinstance(each, Text))
        refusal = "".join(each.text for each in self.said if isinstance(each, Refusal)) or None
        content = text or (None if self.calls or refusal else "")
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": refusal}
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        calls = self.list_calls()
        if calls and self.wanted.legacy_functions:
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


@dataclass(kw_only=True)
class _ChunkWriter(_ChatAnswer):
    """Writes the chunks of a stream. The first chunk names the role, as OpenAI's does."""

    role_sent: bool = False
    silences: int = 0

    def chunks(self, model: str, events: Iterable[Event]) -> bytes:
        """Write one SSE event for each run of like events; the probabilities stand in the first one that has text."""
        batch = list(events)
        logprobs = _render_logprobs([token for event in batch if isinstance(event, Logprobs) for token in event.tokens])
        out: list[bytes] = []
        for delta in _list_deltas(batch, legacy=self.wanted.legacy_functions):
            out.append(sse(self._make_chunk(model, delta, logprobs if "content" in delta else None)))
            logprobs = None if "content" in delta else logprobs
        if logprobs is not None:
            out.append(sse(self._make_chunk(model, {"content": ""}, logprobs)))
        return b"".join(out)

    def silence(self, model: str, prefill: Prefilled | None = None) -> bytes:
        if prefill is not None:
            return f": {write_prefill(prefill_json(prefill))}\n\n".encode()
        self.silences += 1
        return KEEP_ALIVE if self.silences % COMMENTS_PER_EVENT else sse(self._make_chunk(model, {"content": ""}))

    def error(self, error: ApiError, report: dict[str, Any] | None) -> bytes:
        """Write the error's object as a frame; no `[DONE]` follows it."""
        return sse(error.body() | ({} if report is None else {"mlx_stack": report}))

    def last(self, model: str, finish: Finish, report: dict[str, Any]) -> bytes:
        end = self._make_chunk(model, {}, reason=self._choose_finish_reason(finish))
        if not self.wanted.include_usage:
            return sse(end | {"mlx_stack": report}) + DONE
        usage = self._make_body("chat.completion.chunk", model, [])
        usage |= {"usage": usage_json(finish.usage or Usage(exact=False)), "mlx_stack": report}
        return sse(end) + sse(usage) + DONE

    def _make_chunk(
        self, model: str, delta: dict[str, Any], logprobs: Any = None, reason: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": 0, "delta": self._add_role(delta), "logprobs": logprobs, "finish_reason": reason}
        chunk = self._make_body("chat.completion.chunk", model, [choice])
        return chunk | {"usage": None} if self.wanted.include_usage else chunk

    def _add_role(self, delta: dict[str, Any]) -> dict[str, Any]:
        if self.role_sent:
            return delta
        self.role_sent = True
        return {"role": "assistant", "content": None if delta else ""} | delta


def _list_deltas(events: list[Event], *, legacy: bool) -> Iterable[dict[str, Any]]:
    for event in merge_events(events):
        if isinstance(event, (Text, Reasoning, Refusal)):
            anew = isinstance(event, Reasoning) and event.anew
            yield {_FIELDS[type(event)]: f"\n\n{event.text}" if anew else event.text}
        elif isinstance(event, CallDelta):
            yield _render_call_delta(event, legacy=legacy)


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


CHAT = Dialect(
    name="chat",
    parse=parse_chat,
    collector=lambda call, _: _AnswerCollector(wanted=call.wanted),
    writer=lambda call, _: _ChunkWriter(wanted=call.wanted),
    error_body=lambda error, _: error.body(),
)
