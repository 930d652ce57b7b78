"""The form in which an upstream takes a request, learned from its refusals. Pure.

Beside the conversation (`HistoryForm`, `Missing`) these are the fields that it refuses. OpenAI's models since o1 want
the number of tokens as `max_completion_tokens`. Groq, Mistral, Cerebras and Gemini refuse each field that they don't
know, and models that reason take no temperature; agents send some to every API. Those that change no words of an
answer, and wishes about thinking and sampling, are left out there (`list_left_out` tells the report); where a value is
refused, with that value alone. What else is refused (`logit_bias`, `seed`) another tier may take. A model that writes
fewer tokens than it is asked for is asked for as many as it names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from deployments.tiers.history_repair import HistoryForm
from deployments.tiers.hosted.answer_limits import asks_for_fewer, find_cap
from deployments.tiers.hosted.missing_thoughts import Missing, find_missing
from deployments.tiers.hosted.upstream_errors import UpstreamComplaint, wants_softer
from reliability.types import ChatRequest

_OURS = frozenset({"max_tokens", "stream_options"})  # this server sends them with each request
_DISPENSABLE = frozenset({
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "client_metadata", "prediction", "parallel_tool_calls", "verbosity", "reasoning_effort", "reasoning", "thinking",
    "thinking_budget", "enable_thinking", "chat_template_kwargs", "temperature", "top_p", "top_k", "min_p",
    "frequency_penalty", "presence_penalty",
})  # fmt: skip
_REFUSES_FIELD = re.compile(
    r"unsupported|not? support|n't support|not permitted|not allowed|extra_forbidden|unrecognized"
    r"|(unknown|unexpected) (name|field|parameter|argument|property|keyword)|cannot find field",
    re.IGNORECASE,
)
_REFUSES_VALUE = re.compile(
    r"must be one of|unsupported value|supported values are|input should be ['\"]", re.IGNORECASE
)
_ONE_VALUE = re.compile(r"\bonly the default\b", re.IGNORECASE)  # which needs no field
_VALUES_MAX = 64  # of one form
_VALUE_CHARS_MAX = 200  # by which a value is known again
_REFUSING = frozenset({400, 422})


@dataclass(frozen=True, slots=True)
class UpstreamForm:
    """What a request is sent as. `missing`: what is filled in; `refused`: the fields that aren't sent, and
    `refused_values`: with which value. `tokens_max`: the most that the model writes; 0 where the upstream refuses this
    server's own limit and names none."""

    history: HistoryForm = HistoryForm.AS_WRITTEN
    missing: frozenset[Missing] = frozenset()
    refused: frozenset[str] = frozenset()
    refused_values: tuple[tuple[str, str], ...] = ()
    tokens_max: int | None = None

    def find_limit(self, request: ChatRequest) -> int | None:
        """Return how many tokens the answer may have; None where the upstream isn't told."""
        if self.tokens_max == 0:
            return request.max_tokens if request.max_tokens_named else None
        return min(request.max_tokens, self.tokens_max or request.max_tokens)

    def learn(
        self, status: int, complaint: UpstreamComplaint, request: ChatRequest, *, lowers: bool = True
    ) -> UpstreamForm:
        """Return the form that a refusal of this one asks for, which may be the same. `lowers`: the tokens of this
        request's answer weren't lowered yet."""
        if (missing := find_missing(complaint.message)) is not None:
            return replace(self, missing=self.missing | {missing})
        if (softer := wants_softer(status, complaint)) is not None:
            refused = {Missing.THOUGHT} if softer is HistoryForm.NO_THOUGHTS else set()
            return replace(self, history=max(self.history, softer), missing=self.missing - refused)
        if status not in _REFUSING:
            return self
        limit = self.find_limit(request)
        if lowers and limit is not None and (cap := find_cap(complaint.said, limit)) is not None:
            return replace(self, tokens_max=cap)
        if (fit := self._refuse(complaint, request)) != self:
            return fit
        return replace(self, tokens_max=0) if not request.max_tokens_named and asks_for_fewer(complaint.said) else self

    def _refuse(self, complaint: UpstreamComplaint, request: ChatRequest) -> UpstreamForm:
        """Return this form without the fields, or the values of fields, that are refused."""
        said, sent = complaint.said, _list_sent(request)
        if _REFUSES_VALUE.search(said) and not _ONE_VALUE.search(said):
            values = [(name, _write(value)) for name, value in sent if _names(complaint, name)]
            known = dict.fromkeys((*self.refused_values, *values))
            return replace(self, refused_values=tuple(known)[-_VALUES_MAX:])
        if not _REFUSES_FIELD.search(said):
            return self
        return replace(self, refused=self.refused | {name for name in _OURS | _DISPENSABLE if _names(complaint, name)})

    def fit_fields(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields of a body as the upstream takes them."""
        if not self.refused and not self.refused_values:
            return body
        fit = {name: value for name, value in body.items() if not self._refuses(name, value)}
        named = "max_tokens" in self.refused and "max_tokens" in body
        return fit | ({"max_completion_tokens": body["max_tokens"]} if named else {})

    def list_left_out(self, request: ChatRequest) -> list[str]:
        """List the client's fields that aren't sent, with the value where that is why."""
        return [
            name if name in self.refused else f"{name} {_write(value)}"
            for name, value in _list_sent(request)
            if self._refuses(name, value)
        ]

    def _refuses(self, name: str, value: Any) -> bool:
        named = any(name == known for known, _ in self.refused_values)  # few are, and not all values are small
        return name in self.refused or (named and (name, _write(value)) in self.refused_values)


def _list_sent(request: ChatRequest) -> list[tuple[str, Any]]:
    """List the client's fields that can be left out, with their values."""
    given = {name: request.extra.get(name, getattr(request, name, None)) for name in sorted(_DISPENSABLE)}
    return [(name, value) for name, value in given.items() if value is not None or name in request.extra]


def _write(value: Any) -> str:
    return json.dumps(value, default=str)[:_VALUE_CHARS_MAX]


def _names(complaint: UpstreamComplaint, name: str) -> bool:
    return complaint.param == name or re.search(rf"[\"'`]{name}[\"'`]", complaint.message) is not None
