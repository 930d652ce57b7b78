"""`POST /v1/messages`, outwards: events as one message, or as a stream.

`message_start` estimates the prompt's tokens where its tier hasn't counted them yet. Thoughts leave only where the
client asked for thinking: many clients read the first block as the text. What the server refuses for good is a
`billing_error`, and a prompt that is too long has words of Claude Code's:
docs/decisions/070-errors-that-agents-heed.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from deployments.api.anthropic.context_edits import describe_edits
from deployments.api.anthropic.messages_body import parse_messages, rename
from deployments.api.dialect import Dialect
from deployments.api.openai_chat import ChatCall
from deployments.api.openai_render import KEEP_ALIVE, CollectedAnswer
from deployments.errors import ApiError
from deployments.reports.report import prefill_json
from deployments.request.run_record import Run
from deployments.tiers.stream_matchers import merge_events
from deployments.work.json_text import read_json, write_json
from reliability.answer.estimate import tokens_about
from reliability.surrogates import may_hold_halves
from reliability.types import CallDelta, Event, Finish, FinishReason, Prefilled, Reasoning, Refusal, Text, Usage

_STOP_REASONS = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.CONTENT_FILTER: "refusal",
}
_UNSIGNED = "mlx-stack-serve"
# Of other statuses it is `invalid_request_error`.
_TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 408: "timeout_error",
    413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 502: "api_error", 503: "overloaded_error",
    504: "timeout_error",
}  # fmt: skip
_LEAVE_OUT = frozenset({"unsupported", "context_length_exceeded"})
_TOO_LONG = "prompt is too long: "
# At these words the tool runner of Anthropic's SDK sends the whole history, without `thread`.
_NO_THREAD = {"error_code": "thread_unsupported_request"}


def _frame(event: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))


_PING = _frame({"type": "ping"})


@dataclass(kw_only=True)
class _MessageAnswer:
    """What a message and the stream of one have in common. `edits`: what is told of those that the client asked for."""

    run: Run
    thinking: bool
    edits: dict[str, Any] = field(default_factory=dict)
    answer_id: str = field(default_factory=lambda: f"msg_{uuid.uuid4().hex}")


@dataclass(kw_only=True)
class _MessageCollector(_MessageAnswer, CollectedAnswer):
    def body(self, model: str, finish: Finish) -> bytes:
        message = _make_message(self.answer_id, model, _make_whole_usage(self.run, finish))
        end = _make_end(self.run, finish, refused=any(isinstance(each, Refusal) for each in self.said))
        return orjson.dumps(message | {"content": self._make_content()} | end | self.edits)

    def _make_content(self) -> list[dict[str, Any]]:
        content: list[dict[str, Any]] = []
        if self.run.summary:
            content.append({"type": "compaction", "content": self.run.summary})
        if self.thinking and self.reasoning:
            content.append({"type": "thinking", "thinking": "".join(self.reasoning), "signature": _UNSIGNED})
        if text := "".join(each.text for each in self.said):
            content.append({"type": "text", "text": text})
        for call in self.list_calls():
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            content.append({"type": "tool_use", "id": call["id"], "name": name, "input": _write_input(arguments)})
        return content


def _write_input(arguments: str) -> orjson.Fragment | dict[str, str]:
    """Write a call's arguments as they stand, so that no number in them changes; in an object where they are none."""
    try:
        value = read_json(arguments.encode() or b"{}")
    except (ValueError, RecursionError):
        return {"arguments": arguments}
    if not isinstance(value, dict):
        return {"arguments": arguments}
    return orjson.Fragment(write_json(value) if may_hold_halves(arguments) else arguments or "{}")


@dataclass(kw_only=True)
class _MessageWriter(_MessageAnswer):
    """Writes one stream. `open`: the kind of the open block, of a call with its index; `count`: how many blocks there
    were; `refused`: one of them was a refusal."""

    begun: bool = False
    open: str = ""
    count: int = 0
    refused: bool = False

    def chunks(self, model: str, events: Iterable[Event]) -> bytes:
        out = [] if self.begun else [self._start(model)]
        for event in merge_events(list(events)):
            match event:
                case Text(text=text) | Refusal(text=text):
                    kind = "text"
                    self.refused = self.refused or isinstance(event, Refusal)
                case Reasoning(text=text) if self.thinking:
                    kind = "thinking"
                    out += self._close() if event.anew else []  # a block of its own
                case CallDelta(arguments=text):
                    kind = f"tool_use {event.index}"
                    if kind != self.open:
                        block = {"type": "tool_use", "id": event.id or "", "name": event.name or "", "input": {}}
                        out += self._open_block(kind, block)
                case _:
                    continue
            out += self._write(kind, text)
        return b"".join(out)

    def silence(self, model: str, prefill: Prefilled | None = None) -> bytes:
        if prefill is not None:
            return _frame({"type": "ping", "mlx_stack": {"prefill": prefill_json(prefill)}})
        return _PING if self.begun else KEEP_ALIVE

    def last(self, model: str, finish: Finish, report: dict[str, Any]) -> bytes:
        start = b"" if self.begun else self._start(model)
        delta = {
            "type": "message_delta",
            "delta": _make_end(self.run, finish, refused=self.refused),
            "usage": _make_whole_usage(self.run, finish),
        } | self.edits
        stop = {"type": "message_stop", "mlx_stack": report}
        return b"".join([start, *self._close(), _frame(delta), _frame(stop)])

    def error(self, error: ApiError, report: dict[str, Any] | None) -> bytes:
        body = _message_error(error, self.run.request.request_id)
        return _frame(body if report is None else body | {"mlx_stack": report})

    def _start(self, model: str) -> bytes:
        self.begun = True
        usage = _make_usage(self.run.counted) | {"output_tokens": 0}
        if not self.run.counted.prompt_tokens:
            usage["input_tokens"] = tokens_about(self.run.prompt_bytes)
        start = _frame({"type": "message_start", "message": _make_message(self.answer_id, model, usage)})
        if not self.run.summary:
            return start
        delta = {"type": "compaction_delta", "content": self.run.summary}
        begin = self._open_block("compaction", {"type": "compaction", "content": None})
        return b"".join([start, *begin, _frame({"type": "content_block_delta", "index": 0, "delta": delta})])

    def _write(self, kind: str, text: str) -> list[bytes]:
        if not text:
            return []
        if kind == "text":
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": text}
        elif kind == "thinking":
            block = {"type": "thinking", "thinking": "", "signature": ""}
            delta = {"type": "thinking_delta", "thinking": text}
        else:
            block, delta = {}, {"type": "input_json_delta", "partial_json": text}
        begin = [] if kind == self.open else self._open_block(kind, block)
        return [*begin, _frame({"type": "content_block_delta", "index": self.count - 1, "delta": delta})]

    def _open_block(self, kind: str, block: dict[str, Any]) -> list[bytes]:
        closed = self._close()
        self.open = kind
        self.count += 1
        return [*closed, _frame({"type": "content_block_start", "index": self.count - 1, "content_block": block})]

    def _close(self) -> list[bytes]:
        if not self.open:
            return []
        index, out = self.count - 1, []
        if self.open == "thinking":
            delta = {"type": "signature_delta", "signature": _UNSIGNED}
            out.append(_frame({"type": "content_block_delta", "index": index, "delta": delta}))
        self.open = ""
        return [*out, _frame({"type": "content_block_stop", "index": index})]


def _make_message(answer_id: str, model: str, usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": answer_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        **dict.fromkeys(("stop_reason", "stop_sequence", "stop_details", "container")),
        "usage": usage,
    }


def _make_end(run: Run, finish: Finish, *, refused: bool) -> dict[str, Any]:
    """Make what says why it ended; not every server tells which stop sequence it was."""
    reason = "refusal" if refused and finish.reason is FinishReason.STOP else _STOP_REASONS[finish.reason]
    if run.summary and run.compaction is not None and run.compaction.pauses:
        reason = "compaction"
    stop = finish.stop if finish.reason is FinishReason.STOP and finish.stop in run.request.stop else None
    if stop is not None and not refused:
        reason = "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": stop, "stop_details": None, "container": None}


def _make_usage(usage: Usage) -> dict[str, Any]:
    return {**_count_tokens(usage), "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens}}


def _count_tokens(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": max(0, usage.prompt_tokens - usage.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def _make_whole_usage(run: Run, finish: Finish) -> dict[str, Any]:
    """Make the usage of an answer, and what its summary took, which Anthropic counts apart."""
    usage = _make_usage(finish.usage or Usage(exact=False))
    if not run.summary:
        return usage
    iterations = [{"type": "compaction", "cache_creation": None, **_count_tokens(run.summarized)}]
    if finish.usage is not None:
        iterations.append({"type": "message", "cache_creation": None, **_count_tokens(finish.usage)})
    return usage | {"iterations": iterations}


def _begin_answer(call: ChatCall, run: Run) -> dict[str, Any]:
    edits = {} if call.edits is None else {"context_management": describe_edits(call.edits, run.edited)}
    return {"run": run, "thinking": call.wanted.thinking, "edits": edits}


def _message_error(error: ApiError, request_id: str) -> dict[str, Any]:
    described: dict[str, Any] = rename(error).body()["error"]
    if error.code == "context_length_exceeded":
        described["message"] = _TOO_LONG + described["message"]
    if error.code == "unsupported" and error.param == "thread":
        described["details"] = _NO_THREAD
    stays = error.row.refusal is not None and not error.row.retry and error.code not in _LEAVE_OUT
    kind = "billing_error" if stays else _TYPES.get(error.status, "invalid_request_error")
    return {"type": "error", "error": described | {"type": kind}, "request_id": request_id}


MESSAGES = Dialect(
    name="messages",
    parse=parse_messages,
    collector=lambda call, run: _MessageCollector(**_begin_answer(call, run)),
    writer=lambda call, run: _MessageWriter(**_begin_answer(call, run)),
    error_body=_message_error,
    id_header="request-id",
    sign="anthropic-version",
)
