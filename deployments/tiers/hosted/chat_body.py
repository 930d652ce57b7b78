"""A `ChatRequest` as the JSON body of an upstream call.

Fields are written only where they are set. `extra` (what the client sent and this server doesn't know) is
passed on, except what would take a decision away from this server: the model and its substitutes, the shape
of the answer, and the cap on its length.

Two things go to OpenRouter alone: `reasoning`, by which a request asks for thoughts or for none, and the markers of
`cache_control` on the parts of messages. It hands both to models that know them; other servers refuse what they don't
know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

from reliability.types import ChatRequest

__all__ = ["chat_body"]

# `models` and `fallbacks` name substitutes for the upstream to use; `n` asks for answers that nobody reads.
_OURS = frozenset(
    {
        "model",
        "models",
        "fallbacks",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "n",
        "functions",
        "function_call",
    }
)
_OPTIONAL = ("tool_choice", "parallel_tool_calls", "response_format", "seed", "temperature", "top_p")


def chat_body(request: ChatRequest, model: str, *, openrouter: bool = False) -> bytes:
    """Build the bytes to send.

    Raises ValueError or TypeError where the request can't be written as JSON.
    """
    body: dict[str, Any] = {key: value for key, value in request.extra.items() if key not in _OURS}
    body |= {
        "model": model,
        "messages": list(request.messages) if openrouter else [_drop_markers(m) for m in request.messages],
        "max_tokens": request.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body |= {key: value for key in _OPTIONAL if (value := getattr(request, key)) is not None}
    if openrouter and request.thinking is not None:
        body.setdefault("reasoning", {"enabled": request.thinking})
    if request.top_logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if request.tools:
        body["tools"] = list(request.tools)
    if request.stop:
        body["stop"] = list(request.stop)
    try:
        return orjson.dumps(body, default=dict)
    except orjson.JSONEncodeError:
        # Half a character in a message, or a number beyond 64 bits: slower, but it can write them.
        return json.dumps(body, default=dict, allow_nan=False, separators=(",", ":")).encode("ascii")


def _drop_markers(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the message without the markers on its parts."""
    content = message.get("content")
    if not isinstance(content, list) or not any(isinstance(p, dict) and "cache_control" in p for p in content):
        return message
    parts = [{k: v for k, v in p.items() if k != "cache_control"} if isinstance(p, dict) else p for p in content]
    return {**message, "content": parts}
