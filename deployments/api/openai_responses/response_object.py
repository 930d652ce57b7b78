"""The response object and its items, outwards: an answer's events become items, in the order in which they came.

Calls stand behind everything else, since they leave a tier at the end. An answer without anything is a message without
text. `Output` serves an answer in one piece and a stream.
Invariants: no two items have one name; an item has the same place in the stream as in the complete answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from deployments.api.openai_render import add_call, render_tokens
from deployments.api.openai_responses.item_ids import name_response, seal
from deployments.api.openai_responses.response_body import Wanted
from deployments.api.openai_responses.response_tools import SEARCH
from deployments.work.json_text import read_json
from reliability.types import (
    CallDelta,
    Event,
    Finish,
    FinishReason,
    Logprobs,
    Reasoning,
    Refusal,
    Text,
    TokenLogprob,
    Usage,
)

_SAMPLED = ("temperature", "top_p")
_INCOMPLETE = {FinishReason.LENGTH: "max_output_tokens", FinishReason.CONTENT_FILTER: "content_filter"}


class _Form(NamedTuple):
    """What an item's one part is: its type, the key of its text, the beginnings of its events' names (`part`, `text`),
    and the key of the part's place (`at`)."""

    kind: str
    key: str
    part: str
    text: str
    at: str = "content_index"


TEXT = _Form("output_text", "text", "response.content_part", "response.output_text")
_REFUSAL = _Form("refusal", "refusal", "response.content_part", "response.refusal")
_REASONING = _Form("reasoning_text", "text", "response.content_part", "response.reasoning_text")
_SUMMARY = _Form(
    "summary_text", "text", "response.reasoning_summary_part", "response.reasoning_summary_text", "summary_index"
)
_REASONS = (_REASONING, _SUMMARY)


@dataclass(slots=True)
class Saying:
    """A message, or the reasoning before one, while it grows. `place` in the output."""

    item_id: str
    place: int
    form: _Form
    texts: list[str] = field(default_factory=list)
    tokens: list[TokenLogprob] = field(default_factory=list)

    def part(self, *, complete: bool = True) -> dict[str, Any]:
        """Build its one part; at its beginning that is empty."""
        text = "".join(self.texts) if complete else ""
        part = {"type": self.form.kind, self.form.key: text}
        if self.form is not TEXT:
            return part
        return part | {"annotations": [], "logprobs": render_tokens(self.tokens) if complete else []}

    def item(self, status: str, *, sealed: bool = False) -> dict[str, Any]:
        """Build the item; as long as it is in progress it has no parts."""
        parts = [] if status == "in_progress" else [self.part()]
        if self.form not in _REASONS:
            return {"id": self.item_id, "type": "message", "role": "assistant", "status": status, "content": parts}
        summary, content = (parts, []) if self.form is _SUMMARY else ([], parts)
        item: dict[str, Any] = {"id": self.item_id, "type": "reasoning", "summary": summary, "content": content}
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
                    added.append((self._find(TEXT), text, []))
                case Refusal(text=text):
                    added.append((self._find(_REFUSAL), text, []))
                case Reasoning(text=text):
                    form = _SUMMARY if self.wanted.summary else _REASONING
                    added.append((self._find(form, anew=event.anew), text, []))
                case Logprobs():
                    added.append((self._find(TEXT), "", list(event.tokens)))
                case CallDelta():
                    add_call(self.calls, event)
        runs = added if len(added) < 2 else _merge_runs(added)
        for saying, text, tokens in runs:
            saying.texts.append(text)
            saying.tokens += tokens
        return runs

    def end(self) -> None:
        """Give an answer without anything its message."""
        if not self.calls and all(saying.form in _REASONS for saying in self.sayings):
            self._find(TEXT)

    def call_items(self, status: str = "completed") -> list[tuple[int, dict[str, Any]]]:
        """Build the items of the calls, each with its place; in progress they are without what is handed over."""
        first = len(self.sayings)
        calls = [self.calls[index] for index in sorted(self.calls)]
        return [(place, self._build_call(call, place, status)) for place, call in enumerate(calls, start=first)]

    def items(self, status: str = "completed") -> list[dict[str, Any]]:
        """Build all items; `status` is that of the last one of a broken answer, of which a summary shows nothing."""
        if self.wanted.compacts:
            return [self.compaction()] if status == "completed" else []
        sealed, last = self.wanted.sealed, len(self.sayings) - 1
        said = [
            saying.item(status if place == last and not self.calls else "completed", sealed=sealed)
            for place, saying in enumerate(self.sayings)
        ]
        return said + [item for _, item in self.call_items()]

    def compaction(self) -> dict[str, Any]:
        """Build the item of a summary, of all that the model has said."""
        said = ["".join(saying.texts) for saying in self.sayings if saying.form not in _REASONS]
        return {"id": f"cmp_{self.wanted.tag}_0", "type": "compaction", "encrypted_content": seal("\n".join(said))}

    def _find(self, form: _Form, *, anew: bool = False) -> Saying:
        if self.sayings and self.sayings[-1].form is form and not anew:
            return self.sayings[-1]
        place = len(self.sayings)
        saying = Saying(f"{'rs' if form in _REASONS else 'msg'}_{self.wanted.tag}_{place}", place, form)
        self.sayings.append(saying)
        return saying

    def _build_call(self, call: Mapping[str, Any], place: int, status: str) -> dict[str, Any]:
        function, begun = call["function"], status == "in_progress"
        namespace, name = self.wanted.namespaces.get(function["name"], (None, function["name"]))
        known = {"status": status, "call_id": call["id"], "name": name}
        known |= {} if namespace is None else {"namespace": namespace}
        if function["name"] in self.wanted.custom:
            given = "" if begun else _read_input(function["arguments"])
            return {"id": f"ctc_{self.wanted.tag}_{place}", "type": "custom_tool_call", "input": given} | known
        if function["name"] == SEARCH and self.wanted.searches:
            item = {"id": f"tsc_{self.wanted.tag}_{place}", "type": "tool_search_call", "execution": "client"}
            arguments = read_json(function["arguments"].encode())
            return item | {"status": status, "call_id": call["id"], "arguments": arguments}
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
    try:
        value = read_json(arguments.encode())
    except (ValueError, RecursionError):
        return arguments
    given = value.get("input") if isinstance(value, dict) else None
    return given if isinstance(given, str) else arguments


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
    # A summary that the token limit has cut is still one.
    reason = None if finish is None or wanted.compacts else _INCOMPLETE.get(finish.reason)
    status = "in_progress" if finish is None else "completed" if reason is None else "incomplete"
    if error is not None:
        status = "failed"
    broken = "incomplete" if status in ("incomplete", "failed") else "completed"
    sampled = {} if finish is None or finish.sampled is None else dict(zip(_SAMPLED, finish.sampled, strict=True))
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
        **sampled,
    }
