"""The proxy reads each API as its clients do: tools, text, calls, usage and errors, whole and streamed."""

import json
from typing import Any

import pytest

from tests.clients.wires import Answer, Call, chat, messages, responses

FUNCTION = {"name": "read_file", "parameters": {"type": "object", "required": ["path"]}}
CALL = Call("read_file", '{"path": "a"}')
ERROR = {"code": "loop_detected", "message": "again"}


def stream(*events: dict[str, Any]) -> bytes:
    """Write a stream of events, with comments between them."""
    frames = [f"event: {event.get('type', 'x')}\ndata: {json.dumps(event)}\n\n" for event in events]
    return ": keep-alive\n\n".join(frames).encode()


def test_tools_of_each_api():
    """What a tool requires is known by its name, wherever the API puts it."""
    namespace = {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}]}
    custom = {"type": "custom", "name": "apply_patch"}
    declared = [{"type": "function", **FUNCTION}, namespace, custom, {"type": "web_search"}]

    assert chat.read_tools({"tools": [{"type": "function", "function": FUNCTION}]}) == {"read_file": ["path"]}
    assert messages.read_tools({"tools": [{"name": "a", "input_schema": {"required": ["b"]}}]}) == {"a": ["b"]}
    assert responses.read_tools({"tools": declared}) == {"read_file": ["path"], "spawn": [], "apply_patch": None}
    assert chat.read_tools({}) == messages.read_tools({}) == responses.read_tools({}) == {}


def test_a_chat_completion():
    """Whole and streamed are read alike."""
    function = {"name": CALL.name, "arguments": CALL.arguments}
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    whole = {"choices": [{"message": {"content": "Hi.", "tool_calls": [{"function": function}]}}], "usage": usage}
    parts = [{"name": CALL.name, "arguments": ""}, {"arguments": CALL.arguments}]
    deltas = [{"content": "H"}, {"content": "i."}, *({"tool_calls": [{"index": 0, "function": one}]} for one in parts)]
    chunks = [{"choices": [{"delta": delta}]} for delta in deltas]
    streamed = stream(*chunks, {"choices": [], "usage": usage}) + b"data: [DONE]\n\n"

    wanted = Answer("Hi.", [CALL], (3, 4), ended=True)
    assert chat.read_answer(json.dumps(whole).encode()) == wanted
    assert chat.read_answer(streamed) == wanted
    assert not chat.read_answer(streamed[:-16]).ended


def test_a_message():
    """What came from a cache counts as prompt; the last usage of a stream is added to the first."""
    usage = {"input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 4}
    tool = {"type": "tool_use", "id": "t", "name": CALL.name}
    whole = {"content": [{"type": "text", "text": "Hi."}, tool | {"input": {"path": "a"}}], "usage": usage}
    streamed = stream(
        {"type": "message_start", "message": {"usage": usage | {"output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi."}},
        {"type": "content_block_start", "index": 1, "content_block": tool | {"input": {}}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"path":'}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ' "a"}'}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    )

    wanted = Answer("Hi.", [CALL], (3, 4), ended=True)
    assert messages.read_answer(json.dumps(whole).encode()) == wanted
    assert messages.read_answer(streamed) == wanted


def test_a_response():
    """A stream is read by its items and by the response that ends it."""
    text = {"type": "message", "content": [{"type": "output_text", "text": "Hi."}]}
    call = {"type": "function_call", "name": CALL.name, "arguments": CALL.arguments}
    usage = {"input_tokens": 3, "output_tokens": 4}
    whole = {"status": "completed", "output": [text, call], "usage": usage, "error": None}
    streamed = stream(
        {"type": "response.output_text.delta", "delta": "Hi."},
        {"type": "response.output_item.done", "item": text},
        {"type": "response.output_item.done", "item": call},
        {"type": "response.completed", "response": whole},
    )

    wanted = Answer("Hi.", [CALL], (3, 4), ended=True)
    assert responses.read_answer(json.dumps(whole).encode()) == wanted
    assert responses.read_answer(streamed) == wanted
    patch = {"output": [{"type": "custom_tool_call", "name": "apply_patch", "input": "***"}]}
    assert responses.read_answer(json.dumps(patch).encode()).calls == [Call("apply_patch", "***", free=True)]


@pytest.mark.parametrize(
    ("wire", "event"),
    [
        (chat, {"error": ERROR}),
        (messages, {"type": "error", "error": ERROR}),
        (responses, {"type": "error", **ERROR}),
        (responses, {"type": "response.failed", "response": {"status": "failed", "error": ERROR}}),
    ],
)
def test_an_error_in_a_stream(wire, event):
    """What ends a stream that had begun is seen as an error, with its code."""
    error = wire.read_answer(stream(event)).error

    assert (error["code"], error["message"]) == ("loop_detected", "again")


@pytest.mark.parametrize("wire", [chat, messages, responses])
def test_an_error_as_a_whole_answer(wire):
    """An error's body is read in each API."""
    assert wire.read_answer(json.dumps({"type": "error", "error": ERROR}).encode()).error == ERROR
