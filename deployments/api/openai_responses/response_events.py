"""The two ways out of `POST /v1/responses`: one response object, or the events of a stream in OpenAI's order.

An answer that breaks off ends in `response.failed`, with an `error.code` that OpenAI's clients know and this server's
own as `mlx_stack_code`; what stays is a 400 (`STATUSES`): docs/decisions/070-errors-that-agents-heed.md.
Invariants: events are numbered without a gap; a delta belongs to an open item; a stream ends with one of its three
ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from deployments.api.dialect import Dialect
from deployments.api.openai_chat import ChatCall
from deployments.api.openai_render import COMMENTS_PER_EVENT, KEEP_ALIVE, render_tokens
from deployments.api.openai_responses.item_ids import name_response
from deployments.api.openai_responses.response_body import Wanted, parse_response, translate_error
from deployments.api.openai_responses.response_object import TEXT, Output, Saying, build_response, render_usage
from deployments.errors import ApiError
from deployments.reports.report import prefill_json
from reliability.types import Event, Finish, FinishReason, Prefilled, Usage

STATUSES = {"loop_detected": 400, "model_not_found": 400, "body_too_large": 400, "idempotency_key_reused": 400}


class _Answer:
    """An answer that is written. `written`: the response object, once it is complete."""

    def __init__(self, call: ChatCall) -> None:
        self.wanted: Wanted = call.wanted
        self.output, self.created_s = Output(call.wanted), int(time.time())
        self.written = b""


class _ResponseCollector(_Answer):
    def take(self, events: Iterable[Event]) -> None:
        self.output.take(events)

    def body(self, model: str, finish: Finish) -> bytes:
        self.output.end()
        response = build_response(self.wanted, self.created_s, model, output=self.output, finish=finish)
        self.written = orjson.dumps(response)
        return self.written


class _CompactionCollector(_ResponseCollector):
    """Collects the summary that `POST /v1/responses/compact` answers with."""

    def body(self, model: str, finish: Finish) -> bytes:
        """Write the user's messages and the summary behind them."""
        output = orjson.loads(self.wanted.users)
        compacted = {
            "id": name_response(self.wanted.tag),
            "object": "response.compaction",
            "created_at": self.created_s,
            "output": [*output, self.output.compaction()],
            "usage": render_usage(finish.usage or Usage(exact=False)),
        }
        return orjson.dumps(compacted)


class _EventWriter(_Answer):
    def __init__(self, call: ChatCall) -> None:
        super().__init__(call)
        self._asked = call.model
        self._frames: list[bytes] = []
        self._number = self._silences = 0
        self._open: Saying | None = None

    def chunks(self, model: str, events: Iterable[Event]) -> bytes:
        """Write one delta for each run of like pieces. Calls wait for the end, which follows at once."""
        runs = self.output.take(events)
        self._begin(model)
        if self.wanted.compacts:
            return self._take_frames()
        for saying, text, tokens in runs:
            if saying is not self._open:
                self._close_saying("completed")
                self._open_saying(saying)
            more = {"logprobs": render_tokens(tokens)} if saying.form is TEXT else {}
            self._add_of(f"{saying.form.text}.delta", saying, delta=text, **more)
        return self._take_frames()

    def silence(self, model: str, prefill: Prefilled | None = None) -> bytes:
        self._silences += prefill is None
        if prefill is None and self._silences % COMMENTS_PER_EVENT:
            return KEEP_ALIVE
        beside = {} if prefill is None else {"mlx_stack": {"prefill": prefill_json(prefill)}}
        self._say_in_progress(model, **beside)
        return self._take_frames()

    def last(self, model: str, finish: Finish, report: dict[str, Any]) -> bytes:
        self._begin(model)
        if self.wanted.compacts:
            for kind in ("response.output_item.added", "response.output_item.done"):
                self._add(kind, {"output_index": 0, "item": self.output.compaction()})
        else:
            self._end_items(finish)
        response = build_response(self.wanted, self.created_s, model, output=self.output, finish=finish)
        self.written = orjson.dumps(response)
        self._add_end(f"response.{response['status']}", self.written, report)
        return self._take_frames()

    def _end_items(self, finish: Finish) -> None:
        self.output.end()
        last = self.output.sayings[-1] if self.output.sayings else None
        if last is not None and last is not self._open:
            self._close_saying("completed")
            self._open_saying(last)
        complete = finish.reason in (FinishReason.STOP, FinishReason.TOOL_CALLS) or bool(self.output.calls)
        self._close_saying("completed" if complete else "incomplete")
        self._add_calls()

    def error(self, error: ApiError, report: dict[str, Any] | None) -> bytes:
        """Write the end of an answer that broke off, without calls that never left."""
        model = (report or {}).get("tier") or self._asked
        self._begin(model)
        self.output.calls.clear()
        self._close_saying("incomplete")
        failure = _explain_failure(error)
        response = build_response(self.wanted, self.created_s, model, output=self.output, error=failure)
        self._add_end("response.failed", orjson.dumps(response), report)
        return self._take_frames()

    def _begin(self, model: str) -> None:
        if not self._number:
            self._say_in_progress(model)

    def _say_in_progress(self, model: str, **beside: Any) -> None:
        response = orjson.Fragment(orjson.dumps(build_response(self.wanted, self.created_s, model)))
        for name in ("response.in_progress",) if self._number else ("response.created", "response.in_progress"):
            self._add(name, {"response": response} | beside)

    def _open_saying(self, saying: Saying) -> None:
        self._open = saying
        item = saying.item("in_progress", sealed=self.wanted.sealed)
        self._add("response.output_item.added", {"output_index": saying.place, "item": item})
        self._add_of(f"{saying.form.part}.added", saying, part=saying.part(complete=False))

    def _close_saying(self, status: str) -> None:
        saying, self._open = self._open, None
        if saying is None:
            return
        part, form = saying.part(), saying.form
        more = {"logprobs": part["logprobs"]} if form is TEXT else {}
        self._add_of(f"{form.text}.done", saying, **{form.key: part[form.key]}, **more)
        self._add_of(f"{form.part}.done", saying, part=part)
        item = saying.item(status, sealed=self.wanted.sealed)
        self._add("response.output_item.done", {"output_index": saying.place, "item": item})

    def _add_calls(self) -> None:
        begun = self.output.call_items("in_progress")
        for (place, item), (_, complete) in zip(begun, self.output.call_items(), strict=True):
            named: dict[str, Any] = {"item_id": item["id"], "output_index": place}
            self._add("response.output_item.added", {"output_index": place, "item": item})
            if item["type"] != "tool_search_call":
                self._add_given(complete, named)
            self._add("response.output_item.done", {"output_index": place, "item": complete})

    def _add_given(self, item: dict[str, Any], named: dict[str, Any]) -> None:
        kind, given, told = "function_call_arguments", "arguments", {"name": item["name"]}
        if item["type"] == "custom_tool_call":
            kind, given, told = "custom_tool_call_input", "input", {}
        self._add(f"response.{kind}.delta", named | {"delta": item[given]})
        self._add(f"response.{kind}.done", named | {given: item[given]} | told)

    def _add_end(self, kind: str, response: bytes, report: dict[str, Any] | None) -> None:
        beside = {} if report is None else {"mlx_stack": report}
        self._add(kind, {"response": orjson.Fragment(response)} | beside)

    def _add_of(self, kind: str, saying: Saying, **more: Any) -> None:
        named = {"item_id": saying.item_id, "output_index": saying.place, saying.form.at: 0}
        self._add(kind, named | more)

    def _add(self, kind: str, fields: dict[str, Any]) -> None:
        data = orjson.dumps({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        self._frames.append(b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n")

    def _take_frames(self) -> bytes:
        frames, self._frames = self._frames, []
        return b"".join(frames)


def _explain_failure(error: ApiError) -> dict[str, Any]:
    """Explain an error in a stream, by what the clients do with its code."""
    error = translate_error(error)
    message, code = error.message, "invalid_prompt"
    if error.row.retry:
        code = "rate_limit_exceeded" if error.status == 429 else "server_error"
    if code == "rate_limit_exceeded" and error.retry_after_s is not None:
        message += f" (try again in {math.ceil(error.retry_after_s)}s)"
    return {
        "code": code,
        "message": message,
        "param": error.param,
        "type": error.row.type,
        "mlx_stack_code": error.code,
    }


RESPONSES = Dialect(
    name="responses",
    parse=parse_response,
    collector=lambda call, _: _ResponseCollector(call),
    writer=lambda call, _: _EventWriter(call),
    error_body=lambda error, _: translate_error(error).body(),
    statuses=STATUSES,
    counted={"object": "response.input_tokens"},
)
COMPACT = replace(
    RESPONSES,
    name="responses/compact",
    parse=partial(parse_response, compacts=True),
    collector=lambda call, _: _CompactionCollector(call),
)
