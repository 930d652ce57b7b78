"""What stands in a conversation's past and can't be read."""

import json
from typing import Any

import pytest

from deployments.api.anthropic.messages_body import parse_messages
from deployments.api.forms.past import _MORE, _NOTES_MAX, Past, find_user
from deployments.api.openai_chat import parse_chat
from deployments.api.openai_responses.response_body import parse_response
from deployments.errors import ApiError, refuse
from tests.support.refusing import refusal_of

HI = {"role": "user", "content": "hi"}
PARSERS: dict[str, Any] = {"input": parse_response, "messages": parse_messages, "chat": parse_chat}
TEXT = {"type": "text", "text": "so"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
OUTPUT = {"type": "function_call_output", "call_id": "c"}
RESULT = {"type": "tool_result", "tool_use_id": "c"}
AUDIO = {"type": "input_audio", "audio_url": "data:audio/wav;base64,aGk="}  # as Codex 0.169 has it


def ask(api: str, said: list[Any], **more: Any) -> Any:
    field = "input" if api == "input" else "messages"
    body = json.dumps({field: said, "max_tokens": 9, "store": None, **more}).encode()
    return PARSERS[api](body.replace(b'"max_tokens": 9, ', b"") if api == "input" else body, {}, **TERMS)


TERMS: dict[str, Any] = {"request_id": "r", "tokens_max": 100, "timeout_s": 9.0}
BROKEN: dict[str, list[Any]] = {
    "input": [
        "a text", None, {}, {"type": "made_up"}, {"type": 7}, {"role": "tool", "content": "x"}, {"role": "user"},
        {"role": "user", "content": [TEXT, AUDIO, None, {"type": "input_file", "file_id": "f"}]},
        {"role": "assistant", "content": None}, {"role": "assistant", "content": [{"type": "output_audio"}, 3]},
        {**OUTPUT, "output": [AUDIO, {"type": "input_image", "file_id": "f"}]}, {**OUTPUT, "output": None},
        {**OUTPUT, "call_id": 7, "output": "x"}, {"type": "function_call", "call_id": "c", "arguments": "{}"},
        {"type": "reasoning", "summary": None, "content": "hm"}, {"type": "local_shell_call", "call_id": "c"},
        {"type": "computer_call_output", "call_id": "c"}, {"type": "compaction_trigger"}, {"type": "item_reference"},
        {"type": "additional_tools", "tools": [{"type": "shell"}]}, {"type": "item_reference", "id": "rs_abc"},
        {"type": "custom_tool_call", "name": "x", "call_id": "c", "input": None},
    ],
    "messages": [
        "a text", None, {}, {"role": "tool", "content": "x"}, {"role": "user"}, {"role": "assistant", "content": None},
        {"role": "user", "content": [TEXT, {"type": "made_up"}, {"text": "no type"}, None]},
        {"role": "assistant", "content": [{"type": "made_up"}, {"type": "thinking"}, {"type": "text"}, 3]},
        {"role": "assistant", "content": [{"type": "tool_use", "name": 3}, {"type": "image"}]},
        {"role": "user", "content": [{**RESULT, "content": [{"type": "browser_state"}, {"type": "image"}]}]},
        {"role": "user", "content": [{**RESULT, "tool_use_id": 5}, {"type": "tool_use"}]},
        {"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]},
    ],
    "chat": [
        "a text", None, {}, {"role": "model", "content": "x"}, {"role": "user", "content": 5},
        {"role": "user", "content": [{"text": "no type"}, None, "x"]}, {"role": "assistant", "content": [{"type": 3}]},
        {"role": "assistant", "tool_calls": [CALL, {"id": "d"}, None]}, {"role": "assistant", "tool_calls": "x"},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": 3}}]},
        {"role": "tool", "tool_call_id": 7, "content": "x"}, {"role": "user", "name": 3, "content": "x"},
        {"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "input_file", "file_id": "f"}]},
    ],
}  # fmt: skip


@pytest.mark.parametrize(("api", "broken"), [(api, broken) for api, rows in BROKEN.items() for broken in rows])
def test_a_broken_past_ends_no_session(api, broken):
    """Law: whatever a history holds, later turns are answered, and a note says what of it was left out. Codex's
    `goal_objective`, an output without an id, made each later turn of its session a 400."""
    answered = {"role": "assistant", "content": "hello"}
    call, plain = ask(api, [HI, broken, answered, HI]), ask(api, [HI, answered, HI])

    assert call.request.messages[0] == plain.request.messages[0]
    assert call.request.messages[-1] == HI
    assert len(call.notes) > len(plain.notes)


@pytest.mark.parametrize(
    ("api", "result"),
    [
        ("input", {**OUTPUT, "output": [{"type": "input_text", "text": "see"}, AUDIO]}),
        (
            "messages",
            {"role": "user", "content": [{**RESULT, "content": [{**TEXT, "text": "see"}, {"type": "made_up"}]}]},
        ),
    ],
)
def test_a_result_asks_nothing(api, result):
    """Law: what a tool has shown in a form that can't be read is no request: the model is told that it was there."""
    call = ask(api, [HI, result])

    (shown,) = [message for message in call.request.messages if message["role"] == "tool"]
    assert "see" in str(shown["content"])
    assert "can't be read" in str(shown["content"])
    assert len(call.notes) == 1


@pytest.mark.parametrize("api", PARSERS)
def test_what_the_newest_turn_asks_is_refused(api):
    """Law: a part of the user's newest message that can't be read is refused by its path; its own text, where a part of
    an unknown type has one in the past, is read."""
    part = {"type": "input_file", "file_id": "f"} if api != "messages" else {"type": "made_up"}
    refused = refusal_of(ask, api, [HI, {"role": "user", "content": [part]}])
    field = "input" if api == "input" else "messages"

    assert str(refused.param).startswith(f"{field}.1.content.0.")
    if api != "chat":
        past = ask(api, [{"role": "user", "content": [{"type": "made_up", "text": "so"}]}, HI])
        assert past.request.messages[0]["content"] == "so"


def test_notes_of_the_past_are_bounded():
    """Law: a history may be all broken; its notes say so in a few lines."""
    past = Past()
    for at in range(99):
        past.leave_out(refuse(f"messages.{at}", "no"))

    assert len(past.notes) == _NOTES_MAX + 1
    assert list(past.notes)[-1] == _MORE
    with pytest.raises(ApiError):
        Past(asks=True).leave_out(refuse("messages.0", "no"))


def test_the_newest_words_of_the_user_are_found():
    """Law: what is no message is none of the user's."""
    assert find_user([HI, {"role": "assistant"}, HI, None, "x", {"role": "tool"}]) == 2
    assert find_user([]) == -1
