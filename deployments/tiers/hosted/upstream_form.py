"""The form in which an upstream takes a request, learned from its refusals. Pure.

Groq, Mistral, Cerebras and Gemini refuse each field that they don't know, and models that reason take no temperature;
agents send some to every API. Those that change no words of an answer, and wishes about thinking and sampling, are left
out there; where a value is refused, with that value alone. What else is refused (`logit_bias`, `seed`) another tier may
take. Qwen, DeepSeek and Kimi can be made to call a tool only while they don't think.

DeepSeek, Kimi and MiMo refuse a past answer without its `reasoning_content` while they think, Gemini 3 a past call
without its `thought_signature`. Few clients keep either, and a call that another tier made never had one. So a blank
thought is sent (Kimi takes no empty one), and for the signature the value that Google documents for such calls.
Bedrock refuses past calls where no tool is declared, as in a summary that opencode orders: they are said in words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from deployments.tiers.history_repair import HistoryForm
from deployments.tiers.hosted.answer_limits import asks_for_fewer, find_cap
from deployments.tiers.hosted.continuing import ask_without_thought
from deployments.tiers.hosted.field_refusals import (
    CALL_IN_THOUGHT,
    EFFORT_WITH_TOOLS,
    STRICT,
    find_off_switches,
    find_refused,
    refuses,
)
from deployments.tiers.hosted.upstream_errors import UpstreamComplaint, wants_softer
from reliability.types import ChatRequest

_OURS = frozenset({"max_tokens", "stream_options"})  # this server sends them with each request
_DISPENSABLE = frozenset({
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prompt_cache_options", "client_metadata", "prediction", "parallel_tool_calls", "verbosity", "reasoning_effort",
    "reasoning", "thinking", "thinking_budget", "enable_thinking", "chat_template_kwargs", "temperature", "top_p",
    "top_k", "min_p", "frequency_penalty", "presence_penalty",
})  # fmt: skip
_TYPED = ("temperature", "top_p", "parallel_tool_calls")  # of those, what stands in no `extra`
_OFF: Mapping[str, Any] = {"thinking": {"type": "disabled"}, "enable_thinking": False}  # DeepSeek and Kimi; Qwen
_VALUES_MAX = 64  # of one form
_VALUE_CHARS_MAX = 200  # by which a value is known again
_REFUSING = frozenset({400, 422})
_EFFORT = "reasoning_effort"
_BLANK = " "
_WANTS_TOOLS = re.compile(r"(?i)toolconfig field must be defined|must define .?tools\b|calling without .?tools\b")
_UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}


class Missing(Enum):
    """What is missing, by the words of the refusal."""

    THOUGHT = re.compile(
        r"(?is)\breasoning_content\b.{0,60}\b(missing|must be (passed|provided|included|returned|sent))"
        r"|\bmissing\b.{0,20}\breasoning_content\b"
    )
    SIGNATURE = re.compile(r"\bmissing\b.{0,12}\bthought_?signature", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UpstreamForm:
    """What a request is sent as. `openrouter`: to the API that takes more than others. `missing`: what is filled in;
    `refused`: the fields that aren't sent, and `refused_values`: with which value. `tokens_max`: the most that the
    model writes; 0 where the upstream refuses this server's own limit and names none. `calls_in_thought`: a model that
    thinks can be made to call a tool. `effort_with_tools`: the `reasoning_effort` next to tools, empty where none is
    sent, None where as asked. `strict`: tools have that field. `says_calls`: past calls are words where there are no
    tools."""

    openrouter: bool = False
    history: HistoryForm = HistoryForm.AS_WRITTEN
    missing: frozenset[Missing] = frozenset()
    refused: frozenset[str] = frozenset()
    refused_values: tuple[tuple[str, str], ...] = ()
    tokens_max: int | None = None
    calls_in_thought: bool = True
    effort_with_tools: str | None = None
    strict: bool = True
    says_calls: bool = False

    def find_limit(self, request: ChatRequest) -> int | None:
        """Return how many tokens the answer may have; None where the upstream isn't told: all that are left."""
        if self.tokens_max == 0 or request.max_tokens == 0:
            return request.max_tokens if request.max_tokens_named else None
        return min(request.max_tokens, self.tokens_max or request.max_tokens)

    def shape(self, request: ChatRequest) -> ChatRequest:
        """Return the request with the fields that this server adds: what it says of thinking."""
        if not self.calls_in_thought and _wants_call(request):
            request = ask_without_thought(request, named=not self.openrouter, switches=not self.openrouter)
            request = request if self.openrouter else replace(request, extra={**request.extra, **_OFF})
        if not self.strict and _names_strict(request):
            request = replace(request, tools=tuple(map(_drop_strict, request.tools)))
        if self._lowers_effort(request) or (self.effort_with_tools and request.tools):
            extra = {name: value for name, value in request.extra.items() if name != _EFFORT}
            named = {_EFFORT: self.effort_with_tools} if self.effort_with_tools else {}
            request = replace(request, extra=extra | named)
        return _name_reasoning(request) if self.openrouter else request

    def learn(
        self, status: int, complaint: UpstreamComplaint, request: ChatRequest, *, lowers: bool = True
    ) -> UpstreamForm:
        """Return the form that a refusal of this one asks for, which may be the same. `request`: as `shape` returns it;
        `lowers`: the tokens of its answer weren't lowered yet."""
        if (missing := _find_missing(complaint.message)) is not None:
            return replace(self, missing=self.missing | {missing})
        if not request.tools and _WANTS_TOOLS.search(complaint.message):
            return replace(self, says_calls=True)
        if (softer := wants_softer(status, complaint)) is not None:
            refused = {Missing.THOUGHT} if softer is HistoryForm.NO_THOUGHTS else set()
            return replace(self, history=max(self.history, softer), missing=self.missing - refused)
        if status not in _REFUSING:
            return self
        limit = self.find_limit(request)
        if lowers and limit is not None and (cap := find_cap(complaint.said, limit)) is not None:
            return replace(self, tokens_max=cap)
        if _wants_call(request) and refuses(complaint, CALL_IN_THOUGHT):
            return replace(self, calls_in_thought=False)
        if request.tools and refuses(complaint, EFFORT_WITH_TOOLS):  # a model that has one by itself is asked for none
            return replace(self, effort_with_tools="" if _EFFORT in request.extra else "none")
        if _names_strict(request) and refuses(complaint, STRICT):
            return replace(self, strict=False)
        if (fit := self._refuse(complaint, request)) != self:
            return fit
        return replace(self, tokens_max=0) if not request.max_tokens_named and asks_for_fewer(complaint.said) else self

    def _refuse(self, complaint: UpstreamComplaint, request: ChatRequest) -> UpstreamForm:
        fields, values = find_refused(complaint, _OURS, _find_sent(request))
        known = dict.fromkeys((*self.refused_values, *((name, _write(value)) for name, value in values.items())))
        return replace(self, refused=self.refused | fields, refused_values=tuple(known)[-_VALUES_MAX:])

    def fit_fields(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields of a body as the upstream takes them."""
        fit = {name: value for name, value in body.items() if not self._refuses(name, value)}
        named = "max_tokens" in self.refused and "max_tokens" in body
        return fit | ({"max_completion_tokens": body["max_tokens"]} if named else {})

    def list_left_out(self, request: ChatRequest) -> list[str]:
        """List the fields that aren't sent, with the value where that is why."""
        sent = _find_sent(_name_reasoning(request) if self.openrouter else request)
        refused = [(name, value) for name, value in sent.items() if self._refuses(name, value)]
        listed = [name if name in self.refused else f"{name} {_write(value)}" for name, value in refused]
        if self._lowers_effort(request):
            listed = [*(one for one in listed if not one.startswith(_EFFORT)), f"{_EFFORT} next to tools"]
        if not self.strict and _names_strict(request):
            listed.append("strict of tools")
        off = not self.calls_in_thought and _wants_call(request)
        return [*listed, "thinking before a call that tool_choice wants"] if off else listed

    def _lowers_effort(self, request: ChatRequest) -> bool:
        asked = request.extra.get(_EFFORT, "none")
        return self.effort_with_tools is not None and bool(request.tools) and asked != "none"

    def keeps_thinking(self, request: ChatRequest) -> bool:
        """Return whether the request (as of `shape`) switches thinking off, and none of its switches is sent."""
        switches = find_off_switches(_find_sent(request))
        return bool(switches) and all(self._refuses(name, value) for name, value in switches.items())

    def _refuses(self, name: str, value: Any) -> bool:
        named = any(name == known for known, _ in self.refused_values)  # few are, and not all values are small
        return name in self.refused or (named and (name, _write(value)) in self.refused_values)


def _name_reasoning(request: ChatRequest) -> ChatRequest:
    """Name OpenRouter's `reasoning` where the client wants it on or off, or bounds it, and doesn't name it itself."""
    if "reasoning" in request.extra:
        return request
    reasoning: dict[str, Any] | None = None if request.thinking is None else {"enabled": request.thinking}
    bounded = request.thinking is not False and request.thinking_tokens_max is not None
    if bounded and "reasoning_effort" not in request.extra:
        reasoning = {"enabled": True, "max_tokens": request.thinking_tokens_max}
    return request if reasoning is None else replace(request, extra={**request.extra, "reasoning": reasoning})


def _wants_call(request: ChatRequest) -> bool:
    named = isinstance(request.tool_choice, Mapping)
    return bool(request.tools) and (named or request.tool_choice == "required")


def _names_strict(request: ChatRequest) -> bool:
    return any("strict" in (tool.get("function") or {}) for tool in request.tools)


def _drop_strict(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function") or {}
    fit = {name: value for name, value in function.items() if name != "strict"}
    return tool if fit == function else {**tool, "function": fit}


def _find_sent(request: ChatRequest) -> dict[str, Any]:
    given = {name: value for name in _TYPED if (value := getattr(request, name)) is not None}
    return {name: value for name, value in sorted({**request.extra, **given}.items()) if name in _DISPENSABLE}


def _write(value: Any) -> str:
    return json.dumps(value, default=str)[:_VALUE_CHARS_MAX]


def _find_missing(refusal: str) -> Missing | None:
    return next((one for one in Missing if one.value.search(refusal)), None)


def fill_missing(messages: Sequence[Mapping[str, Any]], missing: Collection[Missing]) -> list[Mapping[str, Any]]:
    """Return the messages with a thought for each answer, and a signature for the first call of each."""
    return [_fill(message, missing) if message["role"] == "assistant" else message for message in messages]


def _fill(message: Mapping[str, Any], missing: Collection[Missing]) -> Mapping[str, Any]:
    filled = dict(message)
    if Missing.THOUGHT in missing:
        filled["reasoning_content"] = message.get("reasoning_content") or message.get("reasoning") or _BLANK
    if Missing.SIGNATURE in missing and message.get("tool_calls"):
        first, *rest = message["tool_calls"]
        filled["tool_calls"] = [{"extra_content": _UNSIGNED, **first}, *rest]
    return filled
