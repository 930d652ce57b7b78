"""Messages of a chat completion that are none."""

from typing import Any

import pytest

from deployments.api.openai_chat import _check_message
from deployments.api.past_messages import drop_unreadable
from tests.support.refusing import refusal_of

HI = {"role": "user", "content": "hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CUSTOM = {"id": "d", "type": "custom", "custom": {"name": "g", "input": "x"}}


@pytest.mark.parametrize(
    ("broken", "read"),
    [
        ({"role": "assistant", "tool_calls": [CALL, {"id": "x"}]}, {"role": "assistant", "tool_calls": [CALL]}),
        ({"role": "user", "content": "so", "name": 3}, {"role": "user", "content": "so"}),
        ({"role": "tool", "tool_call_id": 7, "content": "x"}, {"role": "tool", "content": "x"}),
        ({"role": "user", "content": [{"text": "so"}]}, {"role": "user", "content": [{"type": "text", "text": "so"}]}),
        ({"role": "model", "content": "so"}, None),
    ],
)
def test_what_can_be_read_stays(broken, read):
    """Law: of a message that is none the rest stays, each loss with a note; what is right isn't touched."""
    notes: dict[str, None] = {}

    assert drop_unreadable([HI, broken, HI], _check_message, notes) == [HI, *([read] if read else []), HI]
    assert len(notes) == 1


def test_a_custom_call_of_the_past_is_one_of_a_function():
    """Law: a call of free text, which a chat completion here can't declare, is read as Responses reads it."""
    notes: dict[str, Any] = {}
    _, made, _ = drop_unreadable([HI, {"role": "assistant", "tool_calls": [CALL, CUSTOM]}, HI], _check_message, notes)

    function = {"name": "g", "arguments": '{"input":"x"}'}
    assert made["tool_calls"] == [CALL, {"id": "d", "type": "function", "function": function}]
    assert not notes


def test_the_newest_message_is_refused():
    """Law: what the newest turn asks is named by its path."""
    refused = refusal_of(drop_unreadable, [HI, {"role": "user", "content": 5}], _check_message, {})

    assert refused.param == "messages.1.content"
