"""A stored response as bytes."""

import json
import zlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseItemList

from deployments.api.openai_responses import stored_record
from deployments.api.openai_responses.item_ids import make_tag, name_response
from deployments.api.openai_responses.stored_record import NeedsRecall, Recalled, complete_items, write_record
from deployments.errors import ApiError
from reliability.types import Finish, FinishReason
from tests.support.response_wire import ANSWERS, answer, parse

OBJECTS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)


@given(st.lists(OBJECTS, max_size=3), OBJECTS)
def test_what_is_written_is_read_again(items, response):
    """Nothing changes on the way, and the size is that of what is opened."""
    size, record = write_record(orjson.dumps(items), orjson.dumps(response))

    assert stored_record.open_record(record) == {"input": items, "response": response}
    assert size == len(zlib.decompress(record))


def test_a_record_has_a_bound():
    """One that would open to more than a record may hold is not opened."""
    _, record = write_record(b"[]", orjson.dumps({"x": "x" * (3 * stored_record.RECORD_BYTES_MAX)}))

    with pytest.raises(ValueError, match="larger"):
        stored_record.open_record(record)


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
    {
        "type": "function_call_output",
        "call_id": "shown",
        "output": [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "data:,"}],
    },
]


def test_the_list_is_what_the_typed_models_read():
    """Whatever a client has left out, `input_items` lists complete items."""
    items = complete_items(ITEMS, make_tag())
    listed = {"object": "list", "data": items, "first_id": "a", "last_id": "b", "has_more": False}

    ResponseItemList.model_validate_json(json.dumps(listed), strict=True)


@pytest.mark.parametrize("given", ["hi", ITEMS])
def test_what_is_stored_means_the_same(given):
    """A request whose input is what was stored of another has the same messages."""
    stored, sent = (parse({"input": one}).request for one in (complete_items(given, make_tag()), given))
    assert stored.messages == sent.messages


def test_names_differ():
    """An item whose name is taken, or is none, gets one of ours; a good one stays."""
    named = [{"role": "user", "content": "hi", "id": name} for name in ("a", "a", "", None, 3, "x" * 500)]
    names = [item["id"] for item in complete_items(named, make_tag())]

    assert names[0] == "a"
    assert len(set(names)) == len(names)


STOP = Finish(reason=FinishReason.STOP)


def store(body: dict[str, Any], batches: list[list[Any]]) -> tuple[str, bytes, list[dict[str, Any]]]:
    """Answer a request; return the response's name, its record and its items."""
    call = parse(body)
    response = answer(call, batches, STOP)
    return response["id"], write_record(call.wanted.items, json.dumps(response).encode())[1], response["output"]


def answer_calls(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make the outputs of an answer's calls, and something new."""
    calls = [item for item in output if item["type"].endswith("_call")]
    results = [{"type": f"{call['type']}_output", "call_id": call["call_id"], "output": "done"} for call in calls]
    return [*results, {"role": "user", "content": "more"}]


@given(ANSWERS, ANSWERS)
def test_a_chain_is_the_whole_conversation(first, second):
    """Two turns by `previous_response_id` have the very messages of one request that shows all of it; `instructions`
    are the newest's alone."""
    one, record_one, said_one = store({"input": "hi", "instructions": "old"}, first)
    two, record_two, said_two = store({"input": answer_calls(said_one)}, second)
    recalled = Recalled(chain=(record_one, record_two), session="s", size=9)
    body = {"input": answer_calls(said_two), "previous_response_id": two, "instructions": "new"}
    whole = [{"role": "user", "content": "hi"}, *said_one, *answer_calls(said_one), *said_two, *answer_calls(said_two)]
    call = parse(body, recalled=recalled)

    assert call.request.messages == parse({"input": whole, "instructions": "new"}).request.messages
    assert (call.request.session_id, call.trail) == ("s", None)
    assert call.wanted.previous == two != one


def test_a_request_asks_for_what_it_refers_to():
    """Both are asked for at once, each item by its path."""
    name, _, (item,) = store({"input": "hi"}, [])
    asked = name.replace("resp_", "in_") + "_0"
    body = {"input": [{"type": "item_reference", "id": item["id"]}, {"id": asked}], "previous_response_id": name}

    with pytest.raises(NeedsRecall) as caught:
        parse(body)

    assert caught.value.previous == name
    assert caught.value.items == {"input.0.id": item["id"], "input.1.id": asked}


def test_an_item_is_referred_to_once():
    """Law: a request holds no more of a record than all of it: else 19 kB of references made 900 MB of messages. What
    refers to an item again, to an item that isn't kept any more, or to another server's is left out with a note, since
    it would end the session."""
    name, record, (item,) = store({"input": "hi"}, [])
    gone = {"type": "item_reference", "id": "msg_" + "0" * 32 + "_0"}
    user = {"role": "user", "content": "go on"}
    again = [{"type": "item_reference", "id": item["id"]}, {"id": item["id"]}, gone, {"id": "rs_abc"}, user]

    with pytest.raises(NeedsRecall) as caught:
        parse({"input": again})
    call = parse({"input": again}, recalled=Recalled(others={name: record}))

    assert sorted(caught.value.items.values()) == sorted((item["id"], gone["id"]))
    assert call.request.messages == parse({"input": [item, user]}).request.messages
    assert all(name in note for name, note in zip((item["id"], gone["id"], "rs_abc"), call.notes, strict=True))


def test_a_reference_is_the_item_itself():
    """The message is the same as if the item had been sent, in what is stored too."""
    name, record, (item,) = store({"input": "hi"}, [])
    user = {"role": "user", "content": "hi"}
    reference = {"type": "item_reference", "id": item["id"]}
    referring = parse({"input": [user, reference]}, recalled=Recalled(others={name: record}))

    assert referring.request.messages == parse({"input": [user, item]}).request.messages
    assert json.loads(referring.wanted.items)[1]["id"] == item["id"]


def test_a_reference_to_nothing_is_named():
    """The response is there, and has no such item."""
    name, record, _ = store({"input": "hi"}, [])
    wrong = name.replace("resp_", "msg_") + "_7"

    with pytest.raises(ApiError, match=f"Item with id '{wrong}' not found") as caught:
        parse({"input": [{"type": "item_reference", "id": wrong}]}, recalled=Recalled(others={name: record}))

    assert (caught.value.status, caught.value.param) == (404, "input.0.id")


def test_a_chain_alone_is_input_enough():
    """Who goes on from a response need bring nothing."""
    name, record, _ = store({"input": "hi"}, [])

    assert parse({"previous_response_id": name}, recalled=Recalled(chain=(record,), session="s")).request.messages
    assert name_response(name.removeprefix("resp_")) == name


def test_references_have_a_bound():
    """So many things to look for are no request."""
    name, _, _ = store({"input": "hi"}, [])
    items = [{"type": "item_reference", "id": name.replace("resp_", "in_") + f"_{place}"} for place in range(3_000)]

    with pytest.raises(ApiError, match="at most"):
        parse({"input": items, "previous_response_id": name})


def test_a_conversation_has_a_bound():
    """A chain of more messages than a request may have is refused by the field that brings it, and not read to its
    end."""
    name, record, _ = store({"input": [{"role": "user", "content": "hi"}] * 3_000}, [])

    with pytest.raises(ApiError) as caught:
        parse({"input": "more", "previous_response_id": name}, recalled=Recalled(chain=(record,) * 500, session="s"))

    assert (caught.value.status, caught.value.param) == (400, "previous_response_id")
