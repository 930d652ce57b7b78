"""Parts of other dialects in the messages of a chat completion."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.anthropic.messages_history import translate_history
from deployments.api.openai_chat import parse_chat
from tests.support.refusing import refusal_of

URL = "data:image/png;base64,aGk="
TEXT = {"type": "text", "text": "hi"}
IMAGE = {"type": "image_url", "image_url": {"url": URL}}
FUNCTION = {"name": "f", "arguments": '{"a":1}'}
CALL = {"id": "c", "type": "function", "function": FUNCTION}
USE = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": [TEXT]}
USER = {"role": "user", "content": "a"}
NAME = {"tool_call_id": "c"}

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
    (
        {"type": "search_result", "title": "T", "source": "u", "content": [TEXT]},
        {**TEXT, "text": "T (u)\nhi"},
    ),
    ({**TEXT, "citations": None}, TEXT),
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


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "x"}
# What an assistant's answer of Messages holds beside text.
ANSWERED: list[dict[str, Any]] = [
    TEXT,
    {**TEXT, "citations": None},
    USE,
    THOUGHT,
    {"type": "redacted_thinking", "data": "zz"},
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
    {"type": "mcp_tool_use", "id": "m", "name": "g", "server_name": "s", "input": {}},
    {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
    {"type": "mcp_tool_result", "tool_use_id": "m", "content": []},
    {"type": "compaction", "content": None},
]


@given(st.lists(st.sampled_from(ANSWERED), min_size=1, max_size=5))
def test_an_answer_of_messages_is_read_as_messages_reads_it(blocks):
    """Law: text, calls and thoughts of an assistant's blocks are those that Messages' own reader finds; none of the
    blocks goes on as it is. Two calls of one id aren't made here."""
    blocks = [block for at, block in enumerate(blocks) if block is not USE or USE not in blocks[:at]]
    (read_here,) = read({"role": "assistant", "content": blocks})
    _, of_messages, _ = translate_history("s", [{"role": "assistant", "content": blocks}, USER])

    said = [TEXT] * sum(block["type"] == "text" for block in blocks)
    assert read_here.pop("content") == (said or of_messages["content"])
    del of_messages["content"]
    assert read_here == of_messages


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_that_a_message_has_are_not_said_twice(name):
    """Law: a client that sends the thoughts in a field as well sends those of the field; an empty thought is none."""
    (message,) = read({"role": "assistant", "content": [THOUGHT, TEXT], name: "so"})
    assert message == {"role": "assistant", "content": [TEXT], name: "so"}
    empty = {**THOUGHT, "thinking": ""}
    (message,) = read({"role": "assistant", "content": [empty, TEXT, empty]})
    assert message == {"role": "assistant", "content": [TEXT]}


@pytest.mark.parametrize(
    ("role", "part"),
    [
        *(("user", part) for part in ANSWERED if part["type"] not in ("text", "tool_use")),
        ("assistant", {"type": "thinking", "thinking": [TEXT]}),
        ("assistant", {"type": "compaction", "content": "a summary"}),
        ("assistant", RESULT),
    ],
)
def test_a_block_where_messages_has_none_stays(role, part):
    """Law: only an assistant's blocks are left out; Mistral's thoughts, which are lists, are no blocks of Messages."""
    assert read({"role": role, "content": [part]}) == ({"role": role, "content": [part]},)


SHOWN = {**RESULT, "content": [TEXT, {"type": "image", "source": {"type": "url", "url": URL}}]}


@pytest.mark.parametrize(
    ("content", "meant"),
    [
        pytest.param([RESULT], {"c": "hi"}, id="alone"),
        pytest.param([{**RESULT, "tool_use_id": "other"}], {"c": "hi"}, id="the message's id is that of the call"),
        pytest.param([{"type": "tool_result", "content": "hi"}], {"c": "hi"}, id="without an id"),
        pytest.param([{"type": "tool_result"}], {"c": ""}, id="empty"),
        pytest.param([{**RESULT, "is_error": True}], {"c": "Error:hi"}, id="an error"),
        pytest.param([RESULT, {**RESULT, "tool_use_id": "d"}], {"c": "hi", "d": "hi"}, id="of two calls"),
        pytest.param([SHOWN], {"c": [{**TEXT, "text": "hi\n\n"}, IMAGE]}, id="what it shows stays in it"),
        pytest.param([{**SHOWN, "content": SHOWN["content"][1:]}], {"c": [IMAGE]}, id="it shows without a word"),
        pytest.param([IMAGE, RESULT], {"c": [IMAGE, TEXT]}, id="next to a part"),
    ],
)
def test_a_result_in_a_tool_message_is_its_content(content, meant):
    """Law: the message answers the call that it names; a result of another call becomes a message of its own."""
    calls = [{**CALL, "id": id} for id in ("c", "d")]
    out = read({"role": "assistant", "content": None, "tool_calls": calls}, {"role": "tool", "content": content} | NAME)
    assert {message["tool_call_id"]: squeeze(message["content"]) for message in out[1:]} == meant
    assert all(message["role"] == "tool" for message in out[1:])


def squeeze(content: Any) -> Any:
    """Join the texts of a content that is nothing but text."""
    if isinstance(content, str) or any(part["type"] != "text" for part in content):
        return content
    return "".join(part["text"].strip() for part in content)


def test_a_tool_message_without_an_id_answers_the_call_of_its_result():
    """Law: where the message names no call its block does; where neither does, the order tells (`past_calls`)."""
    out = read({"role": "assistant", "content": [USE]}, {"role": "tool", "content": [TEXT, RESULT]})
    assert out[1]["tool_call_id"] == "c"
    out = read({"role": "assistant", "content": [USE]}, {"role": "tool", "content": [{**RESULT, "tool_use_id": ["c"]}]})
    assert out[1]["tool_call_id"] == "c"


@pytest.mark.parametrize(
    ("role", "part", "param"),
    [
        ("user", {"type": "input_text"}, "text"),
        ("user", {"type": "image", "source": {"type": "file", "file_id": "f"}}, "source.type"),
        ("user", {"type": "tool_result", "tool_use_id": 7, "content": "hi"}, "tool_use_id"),
        ("user", {"type": "input_file", "file_id": "f"}, "file_id"),
        ("assistant", {"type": "tool_use", "id": 7, "name": "f", "input": {}}, "id"),
    ],
)
def test_a_part_that_cannot_be_read_is_named(role, part, param):
    """Law: the client is told which part, by its path."""
    refused = refusal_of(read, {"role": "user", "content": "a"}, {"role": role, "content": [TEXT, part]})
    assert refused.param == f"messages.1.content.1.{param}"
