"""`POST /v1/responses` on a real server, with the real openai client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import scripts
from tests.support.serving import Deploy, Server

pytestmark = pytest.mark.ray

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture(scope="module")
def server(deploy: Deploy) -> Server:
    return deploy(scripts.args(scripts.TWO), "responses")


def test_a_plain_answer(server):
    """An unchanged client gets the text, the usage and the tier that answered."""
    with server.client() as client:
        response = client.responses.create(model="auto", input="hi")

    assert response.output_text == "Hello from fast. Grüße, 你好."
    assert response.status == "completed"
    assert response.model == "fast"
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 0


def test_a_stream_says_the_same(server):
    """The client's own accumulator makes of the events what the last of them says."""
    with server.client() as client, client.responses.stream(model="auto", input="hi") as stream:
        events = list(stream)
        final = stream.get_final_response()

    assert final.output_text == "Hello from fast. Grüße, 你好."
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]


def test_the_last_event_has_the_report(server):
    """The report of the request stands beside the fields of the last event."""
    with server.client() as client:
        last = list(client.responses.create(model="auto", input="hi", stream=True))[-1]

    assert (last.type, last.mlx_stack["tier"]) == ("response.completed", "fast")


@pytest.mark.parametrize("stream", [False, True])
def test_a_call(server, stream):
    """A call of a function comes as an item."""
    with server.client() as client:
        if stream:
            with client.responses.stream(model="auto", input="weather", tools=[WEATHER]) as events:
                response = events.get_final_response()
        else:
            response = client.responses.create(model="auto", input="weather", tools=[WEATHER])
    (call,) = [item for item in response.output if item.type == "function_call"]

    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    assert call.call_id
