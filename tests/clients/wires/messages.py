"""Anthropic's Messages, as delivered. What was read from a cache counts as prompt too, which this API counts apart."""

import json
from typing import Any

from tests.clients.wires import Answer, Call, Required, read_events, read_json

PROMPT_KEYS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def read_tools(body: dict[str, Any]) -> Required:
    tools = body.get("tools") or []
    return {tool.get("name", ""): list((tool.get("input_schema") or {}).get("required") or []) for tool in tools}


def read_answer(raw: bytes) -> Answer:
    whole = read_json(raw)
    if whole is None:
        return _read_stream(raw)
    answer = Answer(error=whole.get("error"), report=whole.get("mlx_stack") or {}, ended=True)
    for block in whole.get("content") or []:
        answer.text += block.get("text") or ""
        if block.get("type") == "tool_use":
            answer.calls.append(Call(block["name"], json.dumps(block["input"])))
    answer.usage = _read_usage(whole.get("usage") or {})
    return answer


def _read_stream(raw: bytes) -> Answer:
    answer, usage = Answer(), {}
    blocks: dict[int, dict[str, str]] = {}
    for event in read_events(raw):
        kind = event.get("type")
        answer.report = event.get("mlx_stack") or answer.report
        usage |= (event.get("message") or {}).get("usage") or event.get("usage") or {}
        if kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
            blocks[event["index"]] = {"name": event["content_block"]["name"], "arguments": ""}
        elif kind == "content_block_delta":
            delta = event["delta"]
            answer.text += delta.get("text") or ""
            if "partial_json" in delta:
                blocks[event["index"]]["arguments"] += delta["partial_json"]
        elif kind == "error":
            answer.error = event["error"]
        elif kind == "message_stop":
            answer.ended = True
    answer.calls = [Call(one["name"], one["arguments"] or "{}") for _, one in sorted(blocks.items())]
    answer.usage = _read_usage(usage)
    return answer


def _read_usage(usage: dict[str, Any]) -> tuple[int, int] | None:
    if "output_tokens" not in usage:
        return None
    return sum(usage.get(key) or 0 for key in PROMPT_KEYS), usage["output_tokens"]
