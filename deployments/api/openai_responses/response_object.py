"""The response object and its items, outwards: an answer's events become items, in the order in which they came.

    Reasoning ─▶ a reasoning item     Text ─▶ a message     a call ─▶ function_call, or custom_tool_call

Reasoning and text that alternate become as many items, each complete before the next begins. Calls leave a tier all at
once at the end, so they stand behind everything else. An answer without anything is a message without text: a client
that waits for one finds it.

`Output` is the same for an answer in one piece and for a stream, so that both say the same.

What must never happen: two items of one name, an item of another place in the stream than in the complete answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from deployments.api.openai_render import add_call
from deployments.api.openai_responses.item_ids import name_response
from deployments.api.openai_responses.reasoning_seal import seal
from deployments.api.openai_responses.response_body import Wanted
from reliability.types import CallDelta, Event, Finish, FinishReason, Logprobs, Reasoning, Text, TokenLogprob, Usage

__all__ = ["Output", "Saying", "build_response", "render_tokens", "render_usage"]

INCOMPLETE = {FinishReason.LENGTH: "max_output_tokens", FinishReason.CONTENT_FILTER: "content_filter"}


@dataclass(slots=True)
class Saying:
    """A message, or the reasoning before one, while it grows. `place` in the output."""

    item_id: str
    place: int
    reasons: bool
    texts: list[str] = field(default_factory=list)
    tokens: list[TokenLogprob] = field(default_factory=list)

    def part(self, *, complete: bool = True) -> dict[str, Any]:
        """Build its one part; at its beginning that is empty."""
        text = "".join(self.texts) if complete else ""
        if self.reasons:
            return {"type": "reasoning_text", "text": text}
        tokens = render_tokens(self.tokens) if complete else []
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": tokens}

    def item(self, status: str, *, sealed: bool = False) -> dict[str, Any]:
        """Build the item; as long as it is in progress it has no parts."""
        parts = [] if status == "in_progress" else [self.part()]
        if not self.reasons:
            return {"id": self.item_id, "type": "message", "role": "assistant", "status": status, "content": parts}
        item: dict[str, Any] = {"id": self.item_id, "type": "reasoning", "summary": [], "content": parts}
        if sealed:
            item["encrypted_content"] = seal("".join(self.texts)) if parts else None
        return item | {"status": status}


@dataclass(slots=True)
class Output:
    """Collects the events of one answer."""

    wanted: Wanted
    sayings: list[Saying] = field(default_factory=list)
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)

    def take(self, events: Iterable[Event]) -> list[tuple[Saying, str, list[TokenLogprob]]]:
        """Take a batch; return what it adds to which item, one entry for each run of like pieces."""
        added: list[tuple[Saying, str, list[TokenLogprob]]] = []
        for event in events:
            match event:
                case Text(text=text):
                    added.append((self._find(reasons=False), text, []))
                case Reasoning(text=text):
                    added.append((self._find(reasons=True), text, []))
                case Logprobs():
                    added.append((self._find(reasons=False), "", list(event.tokens)))
                case CallDelta():
                    add_call(self.calls, event)
        runs = added if len(added) < 2 else _merge_runs(added)
        for saying, text, tokens in runs:
            saying.texts.append(text)
            saying.tokens += tokens
        return runs

    def end(self) -> None:
        """Give an answer without anything its message."""
        if not self.calls and all(saying.reasons for saying in self.sayings):
            self._find(reasons=False)

    def call_items(self, status: str = "completed") -> list[tuple[int, dict[str, Any]]]:
        """Build the items of the calls, each with its place; in progress they are without what is handed over."""
        first = len(self.sayings)
        calls = [self.calls[index] for index in sorted(self.calls)]
        return [(place, self._build_call(call, place, status)) for place, call in enumerate(calls, start=first)]

    def items(self, status: str = "completed") -> list[dict[str, Any]]:
        """Build all items; `status` is that of the last one of a broken answer."""
        sealed, last = self.wanted.sealed, len(self.sayings) - 1
        said = [
            saying.item(status if place == last and not self.calls else "completed", sealed=sealed)
            for place, saying in enumerate(self.sayings)
        ]
        return said + [item for _, item in self.call_items()]

    def _find(self, *, reasons: bool) -> Saying:
        """Return the item that more of this kind goes into."""
        if self.sayings and self.sayings[-1].reasons is reasons:
            return self.sayings[-1]
        place = len(self.sayings)
        saying = Saying(f"{'rs' if reasons else 'msg'}_{self.wanted.tag}_{place}", place, reasons)
        self.sayings.append(saying)
        return saying

    def _build_call(self, call: Mapping[str, Any], place: int, status: str) -> dict[str, Any]:
        function, begun = call["function"], status == "in_progress"
        known = {"status": status, "call_id": call["id"], "name": function["name"]}
        if function["name"] in self.wanted.custom:
            given = "" if begun else _read_input(function["arguments"])
            return {"id": f"ctc_{self.wanted.tag}_{place}", "type": "custom_tool_call", "input": given} | known
        arguments = "" if begun else function["arguments"]
        return {"id": f"fc_{self.wanted.tag}_{place}", "type": "function_call", "arguments": arguments} | known


def _merge_runs(added: list[tuple[Saying, str, list[TokenLogprob]]]) -> list[tuple[Saying, str, list[TokenLogprob]]]:
    runs: list[tuple[Saying, list[str], list[TokenLogprob]]] = []
    for saying, text, tokens in added:
        if not runs or runs[-1][0] is not saying:
            runs.append((saying, [], []))
        runs[-1][1].append(text)
        runs[-1][2].extend(tokens)
    return [(saying, "".join(texts), tokens) for saying, texts, tokens in runs]


def _read_input(arguments: str) -> str:
    """Read the free text of a custom tool's call, which is checked before it gets here."""
    given = orjson.loads(arguments).get("input")
    return given if isinstance(given, str) else arguments


def render_tokens(tokens: Iterable[TokenLogprob]) -> list[dict[str, Any]]:
    """Render the probabilities of tokens."""
    return [
        _render_token(token.raw, token.logprob) | {"top_logprobs": [_render_token(*other) for other in token.top]}
        for token in tokens
    ]


def _render_token(raw: bytes, logprob: float) -> dict[str, Any]:
    return {"token": raw.decode(errors="replace"), "logprob": logprob, "bytes": list(raw)}


def render_usage(usage: Usage) -> dict[str, Any]:
    """Render the usage."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def build_response(
    wanted: Wanted,
    created_s: int,
    model: str,
    *,
    output: Output | None = None,
    finish: Finish | None = None,
    error: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Build the response object: in progress, complete with its `finish`, or failed with its `error`."""
    reason = None if finish is None else INCOMPLETE.get(finish.reason)
    status = "in_progress" if finish is None else "completed" if reason is None else "incomplete"
    if error is not None:
        status = "failed"
    broken = "incomplete" if status in ("incomplete", "failed") else "completed"
    return {
        "id": name_response(wanted.tag),
        "object": "response",
        "created_at": created_s,
        "status": status,
        "background": False,
        "completed_at": int(time.time()) if status == "completed" else None,
        "error": error,
        "incomplete_details": None if reason is None else {"reason": reason},
        "model": model,
        "output": [] if output is None else output.items(broken),
        "usage": None if finish is None else render_usage(finish.usage or Usage(exact=False)),
        **{name: orjson.Fragment(value) for name, value in wanted.echo.items()},
    }
