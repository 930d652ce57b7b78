"""Messages, counts, models and errors, held against the types of Anthropic's own SDK.

Anthropic has no public document of its API; its SDK's types are generated from one. They are read strictly here, and a
key that the SDK leaves out where it has nothing to say isn't sent as null: AI SDK 6 reads no `citations: null`.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from anthropic.types import ErrorResponse, Message, MessageTokensCount, ModelInfo, RawMessageStreamEvent
from pydantic import TypeAdapter

from tests.support.serving import Server

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"name": "get_weather", "description": "d", "input_schema": SCHEMA}]
HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "k"}


def say(play: str) -> list[dict[str, Any]]:
    """Ask for this play."""
    return [{"role": "user", "content": f"play:{play}."}]


USED = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}
RETURNED = [{"role": "assistant", "content": [USED]}, {"role": "user", "content": [RESULT]}]
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "plain": ({"messages": say("plain")}, "end_turn"),
    "blocks": ({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}, "end_turn"),
    "system": ({"messages": say("plain"), "system": [{"type": "text", "text": "Be good."}]}, "end_turn"),
    "settings": ({"messages": say("plain"), "temperature": 0.2, "top_p": 0.5, "top_k": 3}, "end_turn"),
    "named": ({"messages": say("plain"), "metadata": {"user_id": "u"}}, "end_turn"),
    "stop": ({"messages": say("stop"), "stop_sequences": ["END"]}, "stop_sequence"),
    "length": ({"messages": say("length")}, "max_tokens"),
    "filter": ({"messages": say("filter")}, "refusal"),
    "thinking": ({"messages": say("reasoning"), "thinking": {"type": "enabled", "budget_tokens": 1024}}, "end_turn"),
    "hidden thinking": ({"messages": say("reasoning")}, "end_turn"),
    "call": ({"messages": say("call"), "tools": TOOLS}, "tool_use"),
    "calls": ({"messages": say("calls"), "tools": TOOLS}, "tool_use"),
    "forced call": ({"messages": say("call"), "tools": TOOLS, "tool_choice": {"type": "any"}}, "tool_use"),
    "said call": ({"messages": say("said-call"), "tools": TOOLS}, "tool_use"),
    "result": ({"messages": [*say("call"), *RETURNED, *say("plain")], "tools": TOOLS}, "end_turn"),
    "refusal": ({"messages": say("refusal")}, "refusal"),
    "refused call": ({"messages": say("refusal"), "tools": TOOLS, "tool_choice": {"type": "any"}}, "refusal"),
    "refused before": (
        {"messages": [*say("refusal"), {"role": "assistant", "content": "No."}, *say("plain")]},
        "end_turn",
    ),
}


def post(server: Server, path: str, body: dict[str, Any]) -> httpx.Response:
    """Send one request."""
    body = {"model": "auto", "max_tokens": 2048} | body
    return httpx.post(f"{server.url}{path}", json=body, headers=HEADERS, timeout=60.0)


def check_blocks(value: Any) -> None:
    """Check that no block has a null."""
    blocks = [*value.get("content", ()), *([value["content_block"]] if "content_block" in value else ())]
    for block in blocks:
        assert None not in block.values()


@pytest.mark.parametrize("name", CASES)
def test_a_whole_message(server, name):
    """It is a `Message` that ends as it should."""
    body, reason = CASES[name]
    response = post(server, "/v1/messages", body)

    assert response.status_code == 200
    assert Message.model_validate_json(response.content, strict=True).stop_reason == reason
    check_blocks(response.json())


@pytest.mark.parametrize("name", CASES)
def test_the_events_of_a_message(server, name):
    """Each is an event that the SDK knows, named as its type."""
    body, reason = CASES[name]
    response = post(server, "/v1/messages", body | {"stream": True})
    events = [frame.split("\n") for frame in response.text.split("\n\n") if frame.startswith("event: ")]
    values = [json.loads(data.removeprefix("data: ")) for _, data in events]

    for (line, _), value in zip(events, values, strict=True):
        assert line == f"event: {value['type']}"
        EVENT.validate_json(json.dumps(value), strict=True)
        check_blocks(value.get("message", value))
    assert [value["type"] for value in values[-2:]] == ["message_delta", "message_stop"]
    assert values[-2]["delta"]["stop_reason"] == reason


def test_a_refusal_is_told_as_text(server):
    """Its words are a block of text: the API has no other place for them."""
    content = post(server, "/v1/messages", {"messages": say("refusal")}).json()["content"]

    assert content == [{"type": "text", "text": "I can't help with that."}]


def test_counts_and_models(server):
    """A count is a `MessageTokensCount`, and each model of the list is a `ModelInfo`."""
    counted = post(server, "/v1/messages/count_tokens", {"messages": say("plain")})
    listed = httpx.get(f"{server.url}/v1/models", headers=HEADERS, timeout=30.0).json()

    MessageTokensCount.model_validate_json(counted.content, strict=True)
    assert {"has_more", "first_id", "last_id"} <= listed.keys()
    for model in listed["data"]:
        ModelInfo.model_validate_json(json.dumps(model))


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/messages", {"messages": []}, 400),
        ("/v1/messages", {"messages": say("fails")}, 502),
        ("/v1/messages", {"messages": say("plain"), "model": "nobody"}, 404),
        ("/v1/messages/count_tokens", {"messages": 5}, 400),
    ],
)
def test_errors(server, path, body, status):
    """Each is an `ErrorResponse`."""
    response = post(server, path, body)

    assert response.status_code == status
    ErrorResponse.model_validate_json(response.content, strict=True)
