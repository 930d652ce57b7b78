"""A `ChatRequest` as the JSON body of an upstream call.

`extra` is passed on, except what would take a decision away from this server. OpenRouter alone gets `reasoning` and the
markers of `cache_control`: other servers refuse what they don't know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

from deployments.tiers.history_repair import Mend, mend, soften
from deployments.tiers.history_words import read_past_arguments
from deployments.tiers.hosted.upstream_form import UpstreamForm, fill_missing
from deployments.work.json_text import write_json
from reliability.types import ChatRequest

# `models` and `fallbacks` name substitutes for the upstream to use; `n` asks for answers that nobody reads.
_OURS = frozenset({
    "model", "models", "fallbacks", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n",
    "functions", "function_call",
})  # fmt: skip
_AS_WRITTEN = UpstreamForm()
_SAID = (Mend.PAIR_RESULTS, Mend.SAY_CALLS, Mend.SAY_RESULTS, Mend.MERGE_TURNS)
_OPTIONAL = ("response_format", "seed", "temperature", "top_p")
_OF_TOOLS = ("tool_choice", "parallel_tool_calls")  # refused by OpenAI where there are none


def chat_body(request: ChatRequest, model: str, form: UpstreamForm = _AS_WRITTEN) -> bytes:
    """Build the bytes to send. Raises ValueError or TypeError where the request can't be written as JSON."""
    request = form.shape(request)
    body: dict[str, Any] = {key: value for key, value in request.extra.items() if key not in _OURS}
    said = form.says_calls and not request.tools
    given = request.messages if form.openrouter and not said else map(_join_texts, request.messages)
    messages = list(map(_mend, given))
    messages = mend(messages, _SAID) if said else messages
    body |= {
        "model": model,
        "messages": fill_missing(soften(messages, form.history), form.missing),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if (limit := form.find_limit(request)) is not None:
        body["max_tokens"] = limit
    optional = (*_OPTIONAL, *(_OF_TOOLS if request.tools else ()))
    body |= {key: value for key in optional if (value := getattr(request, key)) is not None}
    if request.top_logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if request.tools:
        body["tools"] = [_fill_parameters(tool) for tool in request.tools]
    if request.stop:
        body["stop"] = list(request.stop)
    return write_json(form.fit_fields(body), default=dict)


def _mend(message: Mapping[str, Any]) -> dict[str, Any]:
    """Give past calls arguments that are objects, and drop the nulls and the empty lists (of calls, annotations) that
    SDKs write into an answer that is sent back."""
    mended = {key: value for key, value in message.items() if (value is not None and value != []) or key == "content"}
    if calls := mended.get("tool_calls"):
        told = [{key: value for key, value in call.items() if key != "index"} for call in calls]  # of a stream's pieces
        mended["tool_calls"] = [{**call, "function": _mend_function(call["function"])} for call in told]
    if isinstance(old := mended.get("function_call"), dict):
        mended["function_call"] = _mend_function(old)
    return mended


def _mend_function(function: Mapping[str, Any]) -> Mapping[str, Any]:
    given = function.get("arguments")
    if _is_object(given):
        return function
    return {**function, "arguments": json.dumps(read_past_arguments(given), ensure_ascii=False)}


def _is_object(arguments: Any) -> bool:
    try:
        return isinstance(arguments, str) and isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError:
        return False


def _fill_parameters(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tool with a schema of an object: without one, and without properties, backends refuse it."""
    function = tool.get("function")
    if not isinstance(function, dict):
        return tool
    given = function.get("parameters")
    if given and "properties" in given and given.get("type"):
        return tool
    if given and given.get("type", "object") not in ("object", "", None):
        return tool
    parameters = {"properties": {}, **(given or {}), "type": "object"}
    return {**tool, "function": {**function, "parameters": parameters}}


def _join_texts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the message without markers; texts alone are one: DeepSeek, Groq and others take no list of them."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    parts = [{k: v for k, v in p.items() if k != "cache_control"} if isinstance(p, dict) else p for p in content]
    texts = [p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str)]
    if len(texts) < len(parts):
        return {**message, "content": parts}
    *before, last = texts or [""]
    return {**message, "content": "".join(text.removesuffix("\n") + "\n" for text in before) + last}
