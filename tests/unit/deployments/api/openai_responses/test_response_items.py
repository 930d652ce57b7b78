"""From items to messages, and back again."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.openai_chat import _ChatWanted
from deployments.api.openai_render import _AnswerCollector
from deployments.api.openai_responses.response_items import FOREIGN, _read_answer, _read_content, _read_output
from reliability.types import Finish, FinishReason
from tests.support.refusing import refusal_of
from tests.support.response_wire import ANSWERS, answer, ask, parse

STOP = Finish(reason=FinishReason.STOP)
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
IMAGE = {"type": "input_image", "image_url": "https://example.com/a.png"}


def read(*items: dict[str, Any]) -> list[dict[str, Any]]:
    """Read items as messages, without the first one, which stands before them."""
    call = parse({"input": [{"role": "user", "content": "hi"}, *items]})
    return [dict(message) for message in call.request.messages[1:]]


def say(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **more}


def chat_message(batches: list[list[Any]]) -> dict[str, Any]:
    """The message of this answer as the chat dialect has it, with arguments as values."""
    chat = _AnswerCollector(wanted=_ChatWanted())
    for batch in batches:
        chat.take(batch)
    message = read_arguments(json.loads(chat.body("fast", STOP))["choices"][0]["message"])
    assert message.pop("refusal") is None
    return message


def read_arguments(message: dict[str, Any]) -> dict[str, Any]:
    for call in message.get("tool_calls", ()):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return message


@given(ANSWERS, st.sampled_from(["whole", "sealed", "summary"]))
def test_what_was_answered_comes_back_as_a_chat_would(batches, form):
    """The items of an answer, given back with the outputs of its calls, are the very messages that a chat client would
    have sent: loops, sessions and prompt caches see no difference. That holds with the opaque form of reasoning alone,
    and with its summary alone, too."""
    asked = {"reasoning": {"summary": "auto"}} if form == "summary" else {"include": ["reasoning.encrypted_content"]}
    output = answer(ask(**asked), batches, STOP)["output"]
    if form == "sealed":
        output = [{**item, "content": None} if item["type"] == "reasoning" else item for item in output]
    calls = [item for item in output if item["type"].endswith("_call")]
    outputs = [{"type": f"{call['type']}_output", "call_id": call["call_id"], "output": "done"} for call in calls]
    given_back = [read_arguments(message) for message in read(*output, *outputs)]
    results = [{"role": "tool", "tool_call_id": call["call_id"], "content": "done"} for call in calls]

    assert given_back == [chat_message(batches), *results]


@pytest.mark.parametrize("missing", [{}, {"call_id": None}, {"call_id": ""}])
def test_what_has_no_call_id_ends_no_session(missing):
    """Law: calls and outputs without an id belong together in their order, and an output that Codex adds in its own
    name (`create_goal`) takes no other call's place."""
    added = {"type": "function_call_output", "name": "goal_objective", "namespace": "agent", "output": "Read it."}
    (message, *results) = read(CALL, CALL | {"call_id": "call_2"}, OUTPUT, added, OUTPUT | {"call_id": "call_2"})
    assert [call["id"] for call in message["tool_calls"]] == ["call_1", "call_2"]
    assert [result["tool_call_id"] for result in results] == ["call_1", "", "call_2"]

    call = {key: value for key, value in CALL.items() if key != "call_id"} | missing
    output = {key: value for key, value in OUTPUT.items() if key != "call_id"} | missing
    (message, *results) = read(call, call | {"name": "g"}, output, output | {"output": "also"})
    ids = [call["id"] for call in message["tool_calls"]]
    assert ([result["tool_call_id"] for result in results], len(set(ids))) == (ids, 2)


def test_a_turn_is_one_message():
    """Reasoning, text and calls in a row are one answer."""
    reasoning = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    other = CALL | {"call_id": "call_2"}
    (message, *_) = read(reasoning, say("I look."), CALL, other, OUTPUT, OUTPUT | {"call_id": "call_2"})

    assert (message["reasoning_content"], message["content"]) == ("hm", "I look.")
    assert [call["id"] for call in message["tool_calls"]] == ["call_1", "call_2"]


def test_what_follows_an_open_call_belongs_to_it():
    """Nothing may stand between a call and its result, so an answer is not split there."""
    assert [message["role"] for message in read(CALL, say("wait"), CALL | {"call_id": "call_2"}, OUTPUT)] == [
        "assistant",
        "tool",
    ]


def test_two_texts_are_two_messages():
    """What names no response was said one after the other."""
    assert [message["content"] for message in read(say("one"), say("two"))] == ["one", "two"]


def test_a_message_needs_no_type():
    """The easy form has a role and a text."""
    call = parse({"input": [{"role": "system", "content": "s"}, {"role": "developer", "content": "d"}]})

    assert [dict(message) for message in call.request.messages] == [
        {"role": "system", "content": "s"},
        {"role": "developer", "content": "d"},
    ]


def test_images_of_a_result_stand_behind_the_results():
    """A tool message is text; what else a tool shows is a user message behind the last result of the turn."""
    shows = OUTPUT | {"output": [{"type": "input_text", "text": "see"}, IMAGE]}
    messages = read(CALL, CALL | {"call_id": "call_2"}, shows, OUTPUT | {"call_id": "call_2"}, say("ok"))

    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user", "assistant"]
    assert messages[1]["content"] == "see"
    assert messages[3]["content"] == [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]


def test_reasoning_of_another_server_is_noted():
    """What only another server can read is left out, and the report says so."""
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAABabc"}
    call = parse({"input": [{"role": "user", "content": "hi"}, sealed, say("hello")]})

    assert call.notes == (FOREIGN,)
    assert "reasoning_content" not in call.request.messages[-1]


@pytest.mark.parametrize("kind", ["web_search_call", "image_generation_call", "tool_search_output", "mcp_call"])
def test_calls_that_another_server_has_run_end_no_conversation(kind):
    """A conversation that began at OpenAI goes on here without them, and the report says so."""
    messages = [{"role": "user", "content": "hi"}, say("hello"), {"role": "user", "content": "go on"}]
    plain, call = (
        parse({"input": messages}),
        parse({"input": [*messages[:1], {"type": kind, "id": "x"}, *messages[1:]]}),
    )

    assert call.request.messages == plain.request.messages
    assert [kind in note for note in call.notes] == [True]


def encode(text: str, media: str = "text/plain") -> str:
    return f"data:{media};base64,{base64.b64encode(text.encode()).decode()}"


TEXT, SHOWN = {"type": "input_text", "text": "hi"}, {"type": "image_url", "image_url": {"url": IMAGE["image_url"]}}


PDF = encode("x", "application/pdf")
FILE = {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}}


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ("hi", "hi"),
        ([TEXT], "hi"),
        ([IMAGE | {"detail": "low"}], [SHOWN | {"image_url": SHOWN["image_url"] | {"detail": "low"}}]),
        ([{"type": "input_file", "filename": "a.txt", "file_data": encode("Grüße")}], "a.txt:\nGrüße"),
        ([{"type": "input_file", "filename": "a.pdf", "file_data": PDF}], [FILE]),
    ],
)
def test_each_part_is_that_of_a_chat(content, read):
    """A text alone is a string, as most chat clients send it; URL and detail of an image stand together; a file of
    text is its text behind its name, and any other is a file."""
    assert _read_content(content, "p") == read


def test_answers_and_outputs_are_texts_where_they_can_be():
    """An answer is a text unless a part of it is a refusal; the texts of an output are lines of one text."""
    text, refusal = {"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "no"}

    assert _read_answer([text, text], "p") == "aa"
    assert _read_answer([text, refusal], "p") == [{"type": "text", "text": "a"}, refusal]
    assert _read_output([TEXT, IMAGE, TEXT], "p") == ("hi\nhi", [SHOWN])


@pytest.mark.parametrize(("output", "text"), [({"t": [1, "é"]}, '{"t":[1,"é"]}'), (12, "12"), (False, "false")])
def test_an_output_that_is_no_text_is_its_json(output, text):
    """What a tool has brought reaches the model, also where the client sends the value itself."""
    (result,) = read(OUTPUT | {"output": output})[-1:]

    assert (result["role"], result["content"]) == ("tool", text)


WRONG_PARTS: list[tuple[Any, str, str]] = [
    (3, "", "invalid_request"),
    ({"type": "input_audio"}, ".type", "invalid_request"),
    ({"type": "input_text"}, ".text", "invalid_request"),
    ({"type": "input_image"}, ".image_url", "invalid_request"),
    ({"type": "input_file"}, ".file_data", "invalid_request"),
    ({"type": "input_image", "file_id": "f"}, ".file_id", "unsupported"),
    ({"type": "input_image", "image_url": "u", "detail": "x"}, ".detail", "invalid_request"),
    ({"type": "input_file", "file_id": "f"}, ".file_id", "unsupported"),
    ({"type": "input_file", "file_url": "f"}, ".file_url", "unsupported"),
    ({"type": "input_file", "file_data": "hi"}, ".file_data", "invalid_request"),
    ({"type": "input_file", "file_data": "data:text/plain;base64,_w=="}, ".file_data", "invalid_request"),
    ({"type": "input_file", "file_data": "data:text/plain;base64,/w=="}, ".file_data", "invalid_request"),
    ({"type": "input_file", "filename": "x" * 300, "file_data": encode("x")}, ".filename", "invalid_request"),
]


@pytest.mark.parametrize(
    ("item", "param", "code"),
    [
        ({"type": "local_shell_call"}, "input.0.type", "unsupported"),
        ({}, "input.0.type", "invalid_request"),
        ({"type": 3}, "input.0.type", "invalid_request"),
        ("hi", "input.0", "invalid_request"),
        (CALL | {"call_id": 7}, "input.0.call_id", "invalid_request"),
        (CALL | {"name": ""}, "input.0.name", "invalid_request"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "c"}, "input.0.input", "invalid_request"),
        (OUTPUT | {"output": None}, "input.0.output", "invalid_request"),
        ({"role": "tool", "content": "hi"}, "input.0.role", "invalid_request"),
        ({"role": "user", "content": None}, "input.0.content", "invalid_request"),
        ({"role": "user"}, "input.0.content", "invalid_request"),
        ({"type": "reasoning", "content": "hm"}, "input.0.content", "invalid_request"),
        ({"type": "reasoning", "content": [{}]}, "input.0.content.0.text", "invalid_request"),
        ({"type": "reasoning", "encrypted_content": 3}, "input.0.encrypted_content", "invalid_request"),
        *(({"role": "user", "content": [part]}, f"input.0.content.0{path}", code) for part, path, code in WRONG_PARTS),
    ],
)
def test_what_cannot_be_read_is_named_by_its_path(item, param, code):
    """The 400 names the client's own field, in `param` and in its text."""
    caught = refusal_of(parse, {"input": [item]})
    assert (caught.status, caught.code, caught.param) == (400, code, param)
    assert caught.message.startswith(f"{param}: ")
