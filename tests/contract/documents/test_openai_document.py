"""Chat completions, Responses, models, stored responses and errors, held against OpenAI's own document.

Every answer, whole and streamed, has each key that the document requires, and no value that it doesn't allow. What this
server adds (`mlx_stack`, `reasoning_content`) stands beside those.
"""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

from tests.contract.documents.openai_document import find_faults
from tests.support import scripts
from tests.support.named_plays import play_named
from tests.support.serving import Server

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": PARAMETERS}}
CITY = {"type": "json_schema", "json_schema": {"name": "City", "schema": PARAMETERS}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}
REFUSED = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}


def say(play: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"play:{play}."}]


def chat(play: str, *before: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": [*before, *say(play)], **fields}


CHATS: dict[str, dict[str, Any]] = {
    **{play: chat(play) for play in ("plain", "filter", "refusal", "said-refusal")},
    "system": chat("plain", {"role": "system", "content": "Be good."}),
    "developer": chat("plain", {"role": "developer", "content": "Be good."}),
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "play:plain."}]}]},
    "settings": chat("plain", temperature=0.2, top_p=0.5, seed=1, presence_penalty=0.1),
    "names": chat("plain", user="u", metadata={"a": "b"}, safety_identifier="s"),
    "stop": chat("stop", stop=["END"]),
    "length": chat("length", max_completion_tokens=9),
    "reasoning": chat("reasoning", reasoning_effort="low"),
    **{play: chat(play, tools=[WEATHER]) for play in ("call", "calls", "said-call")},
    "bare call": chat("call", tools=[NAMED | {"function": {"name": "get_weather", "parameters": PARAMETERS}}]),
    "forced call": chat("call", tools=[WEATHER], tool_choice="required"),
    "named call": chat("call", tools=[WEATHER], tool_choice=NAMED),
    "legacy call": chat("call", functions=[WEATHER["function"]]),
    "result": chat("plain", *say("call"), CALLED, RESULT, tools=[WEATHER]),
    "refused call": chat("refusal", tools=[WEATHER], tool_choice="required"),
    "refused schema": chat("refusal", response_format=CITY),
    "refused before": chat("plain", *say("refusal"), {"role": "assistant", "content": None, "refusal": "No."}),
    "refused in parts": chat("plain", *say("refusal"), REFUSED),
    "object": chat("json", response_format={"type": "json_object"}),
    "schema": chat("json", response_format=CITY),
    "logprobs": chat("logprobs", logprobs=True),
    "top logprobs": chat("top", logprobs=True, top_logprobs=1),
}
FUNCTION = {"type": "function", **WEATHER["function"]}  # type: ignore[dict-item]
BARE = {"type": "function", "name": "get_weather"}
GIVEN = [
    {"type": "message", "role": "user", "content": "play:call."},
    {"type": "function_call", "call_id": "call_1", **CALL["function"]},  # type: ignore[dict-item]
    {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
]
# What clients leave out of the items that they send back, or send as null.
ANSWERED = [
    {"role": "assistant", "content": "Sunny."},
    {"role": "assistant", "id": None, "content": [{"type": "output_text", "text": "Yes.", "annotations": None}]},
    {"type": "reasoning", "id": None, "summary": None, "content": None, "encrypted_content": None, "status": None},
    {"type": "function_call", "call_id": "call_1", "namespace": None, "status": None, **CALL["function"]},  # type: ignore[dict-item]
    {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": None}],
    },
    {"type": "tool_search_call", "call_id": None, "execution": "client", "arguments": {"query": "x"}},
    {"type": "tool_search_output", "call_id": None, "execution": "client", "tools": []},
]


def respond(play: str, **fields: Any) -> dict[str, Any]:
    return {"input": f"play:{play}.", **fields}


RESPONSES: dict[str, dict[str, Any]] = {
    **{play: respond(play) for play in ("plain", "filter", "refusal", "said-refusal", "breaks")},
    "items": {"input": say("plain"), "instructions": "Be good."},
    "settings": respond("plain", temperature=0.2, top_p=0.5, presence_penalty=0.5),
    "names": respond("plain", user="u", metadata={"a": "b"}, prompt_cache_key="k"),
    "not kept": respond("plain", store=False),
    "length": respond("length", max_output_tokens=9),
    "reasoning": respond("reasoning", reasoning={"effort": "low"}),
    "summary": respond("reasoning", reasoning={"summary": "auto"}),
    "sealed": respond("reasoning", include=["reasoning.encrypted_content"]),
    **{play: respond(play, tools=[FUNCTION]) for play in ("call", "calls", "said-call")},
    "bare call": respond("call", tools=[BARE]),
    "strict call": respond(
        "call", tools=[BARE | {"strict": False, "parameters": None, "description": None}], parallel_tool_calls=False
    ),
    "named call": respond("call", tools=[FUNCTION], tool_choice=BARE),
    "custom": respond("custom", tools=[{"type": "custom", "name": "write"}]),
    "result": {"input": [*GIVEN, *say("plain")], "tools": [FUNCTION]},
    "answered before": {"input": [*say("plain"), *ANSWERED, *say("plain")], "tools": [FUNCTION]},
    "refused schema": respond("refusal", text={"format": {"type": "json_schema", **CITY["json_schema"]}}),
    "refused before": {"input": [*say("refusal"), {"type": "message", **REFUSED}, *say("plain")]},
    "object": respond("json", text={"format": {"type": "json_object"}, "verbosity": "low"}),
    "logprobs": respond("top", include=["message.output_text.logprobs"], top_logprobs=1),
}


@pytest.fixture(scope="module")
def server(deploy, upstream):
    """A hosted tier, whose upstream plays what the last user message names."""
    upstream.plays("some/model", play_named)
    aliases = {"aliases": {"openai/gpt-4o": "premium"}}
    return deploy(scripts.graph({"premium": scripts.hosted(upstream)}, retries=0, server=aliases), "documents")


def post(server: Server, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json={"model": "auto"} | body, headers=headers, timeout=60.0)


def read_stream(response: httpx.Response) -> Iterator[Any]:
    for line in response.text.splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


@pytest.mark.parametrize("name", CHATS)
def test_a_whole_chat_completion(server, name):
    """It is a `CreateChatCompletionResponse`."""
    response = post(server, "/v1/chat/completions", CHATS[name])

    assert (response.status_code, find_faults("CreateChatCompletionResponse", response.json())) == (200, [])


@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize("name", CHATS)
def test_the_chunks_of_a_chat_completion(server, name, usage):
    """Each is a `CreateChatCompletionStreamResponse`; where usage is asked for, each says whether it has it."""
    options = {"stream": True, "stream_options": {"include_usage": usage}}
    response = post(server, "/v1/chat/completions", CHATS[name] | options)
    *chunks, last = read_stream(response)

    assert response.text.endswith("data: [DONE]\n\n")
    for chunk in (*chunks, last):
        assert find_faults("CreateChatCompletionStreamResponse", chunk) == []
    if usage:
        assert all(chunk["usage"] is None for chunk in chunks)
        assert (last["choices"], last["usage"] is None) == ([], False)


@pytest.mark.parametrize("name", [name for name in RESPONSES if name != "breaks"])
def test_a_whole_response(server, name):
    """It is a `Response`, and so is what is kept of it; its input is a `ResponseItemList`."""
    response = post(server, "/v1/responses", RESPONSES[name])
    made = response.json()

    assert (response.status_code, find_faults("Response", made)) == (200, [])
    assert {"presence_penalty", "frequency_penalty"} <= made.keys()
    if made["store"]:
        kept = server.get(f"/v1/responses/{made['id']}")
        given = server.get(f"/v1/responses/{made['id']}/input_items")
        assert kept.json() == made
        assert find_faults("ResponseItemList", given.json()) == []


@pytest.mark.parametrize("name", RESPONSES)
def test_the_events_of_a_response(server, name):
    """Each is a `ResponseStreamEvent`, the response in it a `Response`."""
    response = post(server, "/v1/responses", RESPONSES[name] | {"stream": True})

    for event in read_stream(response):
        assert find_faults("ResponseStreamEvent", event) == []


def test_a_refusal_is_a_refusal(server, stream):
    """A client of chat completions that waits for a schema gets the refusal, as from OpenAI; one of Responses finds it
    in a part of its own."""

    class City(BaseModel):
        city: str

    messages: Any = say("refusal")
    with server.client() as client:
        if stream:
            with client.chat.completions.stream(model="auto", messages=messages, response_format=City) as events:
                kinds = [event.type for event in events]
                message = events.get_final_completion().choices[0].message
            assert "refusal.done" in kinds
            with client.responses.stream(model="auto", input="play:refusal.", text_format=City) as told:
                response: Any = [event for event in told if event.type == "response.completed"][-1].response
        else:
            parsed = client.chat.completions.parse(model="auto", messages=messages, response_format=City)
            message = parsed.choices[0].message
            response = client.responses.parse(model="auto", input="play:refusal.", text_format=City)

    assert (message.refusal, message.content or None, message.parsed) == ("I can't help with that.", None, None)
    (item,) = response.output
    assert (item.content[0].type, item.content[0].refusal) == ("refusal", "I can't help with that.")


def test_models(server):
    """The list is a `ListModelsResponse`, and each of it is a `Model`, also where its name has a slash."""
    listed = server.get("/v1/models").json()

    assert find_faults("ListModelsResponse", listed) == []
    assert "openai/gpt-4o" in [model["id"] for model in listed["data"]]
    for model in listed["data"]:
        assert find_faults("Model", server.get(f"/v1/models/{model['id']}").json()) == []


def test_input_tokens_are_counted(server):
    """It is a `TokenCountsResource`, whatever the prompt stands in, a stored response included."""
    first = post(server, "/v1/responses", {"input": "play:plain."}).json()
    with server.client() as client:
        counted = client.responses.input_tokens.count(model="auto", input="word " * 100)
        on = client.responses.input_tokens.count(model="auto", input="more", previous_response_id=first["id"])
    raw = post(server, "/v1/responses/input_tokens", {"input": "hi"}).json()

    assert find_faults("TokenCountsResource", raw) == []
    assert counted.input_tokens > 50
    assert on.input_tokens > raw["input_tokens"] - 5
    assert raw["mlx_stack"] == {"tier": "premium", "exact": False}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/chat/completions", {"messages": []}, 400),
        ("POST", "/v1/chat/completions", {"model": "nobody", "messages": say("plain")}, 404),
        ("POST", "/v1/chat/completions", {"messages": say("fails")}, 502),
        ("POST", "/v1/responses", {"input": 5}, 400),
        ("POST", "/v1/responses", {"input": "play:fails."}, 502),
        ("POST", "/v1/responses/input_tokens", {"input": 5}, 400),
        ("POST", "/v1/responses/compact", {"input": 5}, 400),
        ("POST", "/v1/responses/resp_1/cancel", {}, 404),
        ("POST", "/v1/responses/resp_1", {}, 405),
        ("GET", "/v1/responses", None, 405),
        ("GET", "/v1/responses/resp_1", None, 404),
        ("GET", "/v1/responses/resp_1?stream=true", None, 400),
        ("GET", "/v1/responses/resp_1/nothing", None, 404),
        ("DELETE", "/v1/responses/resp_1", None, 404),
        ("GET", "/v1/responses/resp_1/input_items", None, 404),
        ("GET", "/v1/models/nobody", None, 404),
        ("PUT", "/v1/chat/completions", {}, 405),
    ],
)
def test_errors(server, method, path, body, status):
    """Each is an `ErrorResponse`, and its message isn't empty."""
    response = httpx.request(method, f"{server.url}{path}", json=body, timeout=60.0)

    assert response.status_code == status
    assert find_faults("ErrorResponse", response.json()) == []
    assert response.json()["error"]["message"]


def test_a_conversation_is_compacted_by_both_ways(server):
    """`compact` answers with the user's messages and a summary, and a stream that ends in a trigger with one summary;
    the conversation goes on from either. All that leaves is as the document has it."""
    history: list[Any] = [*say("plain"), {"role": "assistant", "content": "Long ago."}, *say("call")]
    with server.client() as client:
        compacted = client.responses.compact(model="auto", input=history)
        asked: Any = [*history, {"type": "compaction_trigger"}]
        events = list(client.responses.create(model="auto", input=asked, stream=True))
        done = [event.item for event in events if event.type == "response.output_item.done"]
        for items in (compacted.output, done):
            given = [item.to_dict() for item in items]
            assert find_faults("CompactionBody", given[-1]) == []
            went_on = client.responses.create(model="auto", input=[*given, *say("plain")])
            assert went_on.status == "completed"

    assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
    assert [item.type for item in done] == ["compaction"]
    assert events[-1].type == "response.completed"
    assert compacted.usage.total_tokens > 0


def test_what_is_not_offered_says_so(server):
    """A client that cancels a response learns that this server doesn't, and what to do."""
    with server.client() as client, pytest.raises(openai.NotFoundError, match="isn't offered here"):
        client.responses.cancel("resp_1")
