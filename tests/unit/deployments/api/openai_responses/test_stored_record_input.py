"""The input of a request as it is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import ResponseItemList

from deployments.api.openai_responses.item_ids import make_tag
from deployments.api.openai_responses.stored_record import complete_items
from tests.support.response_wire import parse

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "user", "content": [{"type": "input_image", "image_url": "u"}]},
    {"role": "assistant", "content": "hello"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello"}], "id": "msg_1"},
    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "x"},
    {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "x"},
]


def test_the_list_is_what_the_typed_models_read():
    """Whatever a client has left out, `input_items` lists complete items."""
    items = complete_items(ITEMS, make_tag())
    listed = {"object": "list", "data": items, "first_id": "a", "last_id": "b", "has_more": False}

    ResponseItemList.model_validate_json(json.dumps(listed), strict=True)


@pytest.mark.parametrize("given", ["hi", ITEMS])
def test_what_is_stored_means_the_same(given):
    """A request whose input is what was stored of another has the same messages."""
    assert (
        parse({"input": complete_items(given, make_tag())}).request.messages == parse({"input": given}).request.messages
    )


def test_names_differ():
    """An item whose name is taken, or is none, gets one of ours; a good one stays."""
    named = [{"role": "user", "content": "hi", "id": name} for name in ("a", "a", "", None, 3, "x" * 500)]
    names = [item["id"] for item in complete_items(named, make_tag())]

    assert names[0] == "a"
    assert len(set(names)) == len(names)
