"""The form in which an upstream takes a request, learned from its refusals. Pure.

Beside the conversation (`HistoryForm`, `Missing`) these are the fields that it refuses. OpenAI's models since o1 want
the number of tokens as `max_completion_tokens`. Groq, Mistral, Cerebras and Gemini refuse each field that they don't
know, and models that reason take no temperature; agents send some to every API. Those that change no words of an
answer, and wishes about thinking and sampling, are left out there (`list_left_out` tells the report). What else is
refused (`logit_bias`, `seed`) another tier may take. A model that writes fewer tokens than it is asked for says how
many, and is asked for those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from deployments.tiers.history_repair import HistoryForm
from deployments.tiers.hosted.answer_limits import find_cap, limits_answer
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
    r"unsupported|not? support|n't support|not permitted|not allowed|extra_forbidden|unrecognized|must be one of"
    r"|(unknown|unexpected) (name|field|parameter|argument|property|keyword)|cannot find field",
    re.IGNORECASE,
)
_REFUSING = frozenset({400, 422})


@dataclass(frozen=True, slots=True)
class UpstreamForm:
    """What a request is sent as. `missing`: what is filled in; `refused`: the fields that aren't sent. `tokens_max`:
    the most that the model writes; 0 where the upstream refuses this server's own limit and names none."""

    history: HistoryForm = HistoryForm.AS_WRITTEN
    missing: frozenset[Missing] = frozenset()
    refused: frozenset[str] = frozenset()
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
        if _REFUSES_FIELD.search(complaint.message):
            fields = self.refused | {name for name in _OURS | _DISPENSABLE if _names(complaint, name)}
            if fields != self.refused:
                return replace(self, refused=fields)
        return replace(self, tokens_max=0) if not request.max_tokens_named and limits_answer(complaint.said) else self

    def fit_fields(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields of a body as the upstream takes them."""
        if not self.refused:
            return body
        fit = {name: value for name, value in body.items() if name not in self.refused}
        named = "max_tokens" in self.refused and "max_tokens" in body
        return fit | ({"max_completion_tokens": body["max_tokens"]} if named else {})

    def list_left_out(self, request: ChatRequest) -> list[str]:
        """List the client's fields that aren't sent."""
        return sorted(
            name for name in self.refused - _OURS if name in request.extra or getattr(request, name, None) is not None
        )


def _names(complaint: UpstreamComplaint, name: str) -> bool:
    return complaint.param == name or re.search(rf"[\"'`]{name}[\"'`]", complaint.message) is not None
