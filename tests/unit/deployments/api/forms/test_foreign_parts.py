"""Parts of other dialects in the messages of a chat completion."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.openai_chat import parse_chat
from deployments.errors import ApiError

URL = "data:image/png;base64,aGk="
TEXT = {"type": "text", "text": "hi"}
IMAGE = {"type": "image_url", "image_url": {"url": URL}}
FUNCTION = {"name": "f", "arguments": '{"a":1}'}
CALL = {"id": "c", "type": "function", "function": FUNCTION}
USE = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": [TEXT]}

# What a user's part is in another dialect, and in this one.
SAID: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (TEXT, TEXT),
    (IMAGE, IMAGE),
    ({"type": "input_text", "text": "hi"}, TEXT),
    ({"type": "output_text", "text": "hi", "annotations": []}, TEXT),
    ({"type": "input_image", "image_url": URL}, IMAGE),
    ({"type": "input_image", "image_url": {"url": URL}}, IMAGE),
    ({"type": "input_image", "image_url": URL, "detail": "low"}, {**IMAGE, "image_url": {"url": URL, "detail": "low"}}),
    ({"type": "image_url", "image_url": URL}, IMAGE),
    ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}, IMAGE),
    ({"type": "image", "source": {"type": "url", "url": URL}}, IMAGE),
    ({"type": "document", "source": {"type": "text", "data": "hi"}}, TEXT),
    (
        {"type": "input_file", "filename": "f.txt", "file_data": "data:text/plain;base64,aGk="},
        {**TEXT, "text": "f.txt:\nhi"},
    ),
    *((part, part) for part in ({"type": "image"}, {"type": "input_audio", "input_audio": {}}, {"type": "made_up"})),
]


def read(*messages: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    body = json.dumps({"messages": messages}).encode()
    return parse_chat(body, {}, request_id="r", tokens_max=9, timeout_s=9.0).request.messages


@given(
    st.lists(st.sampled_from(SAID), min_size=1), st.sampled_from(["user", "system", "developer", "tool", "assistant"])
)
def test_a_part_of_another_dialect_is_what_it_means(parts, role):
    """Law: parts of Messages and Responses are read as the parts of chat completions that say the same; those that are
    chat completions' own, or unknown, stay as they are."""
    named = {"tool_call_id": "c"} if role == "tool" else {}
    (message,) = read({"role": role, "content": [given for given, _ in parts], **named})
    assert message == {"role": role, "content": [meant for _, meant in parts], **named}


@given(st.booleans(), st.booleans(), st.lists(st.sampled_from(SAID)))
def test_calls_and_results_in_parts_are_calls_and_results(twice, texts, beside):
    """Law: Anthropic's `tool_use` is the call, once where `tool_calls` has it too; `tool_result` is a message before
    what the user says beside it."""
    said = [TEXT] if texts else []
    out = read(
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [*said, USE], **({"tool_calls": [CALL]} if twice else {})},
        {"role": "user", "content": [RESULT, *(given for given, _ in beside)]},
    )
    assert out[1:3] == (
        {"role": "assistant", "content": said or None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "hi"},
    )
    assert out[3:] == (({"role": "user", "content": [meant for _, meant in beside]},) if beside else ())


@pytest.mark.parametrize(
    ("role", "part", "param"),
    [
        ("user", {"type": "input_text"}, "text"),
        ("user", {"type": "image", "source": {"type": "file", "file_id": "f"}}, "source.type"),
        ("user", {"type": "tool_result", "content": "hi"}, "tool_use_id"),
        ("user", {"type": "input_file", "file_id": "f"}, "file_id"),
        ("assistant", {"type": "tool_use", "name": "f", "input": {}}, "id"),
    ],
)
def test_a_part_that_cannot_be_read_is_named(role, part, param):
    """Law: the client is told which part, by its path."""
    with pytest.raises(ApiError) as refused:
        read({"role": "user", "content": "a"}, {"role": role, "content": [TEXT, part]})
    assert refused.value.param == f"messages.1.content.1.{param}"
