"""Compaction: a conversation out, a summary in, and nothing of the user's lost on the way."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import CompactedResponse, ResponseCompactionItem

from deployments.api.openai_responses.item_ids import open_seal
from deployments.api.openai_responses.response_events import COMPACT, RESPONSES
from deployments.api.openai_responses.response_items import FOREIGN_SUMMARY, SUMMARY_HEAD
from deployments.errors import ApiError
from reliability.summaries import SUMMARY_ORDER
from reliability.types import Finish, FinishReason, Reasoning, Text, Usage
from tests.support.response_wire import ANSWERS, FINISHES, TOOLS, parse, read_frames, stream

TRIGGER = {"type": "compaction_trigger"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "long"}
CUT = Finish(reason=FinishReason.LENGTH, usage=Usage(prompt_tokens=50, completion_tokens=9))
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)
USERS = WORDS.map(lambda text: {"role": "user", "content": text})
ITEMS = st.lists(USERS | st.just(SAID) | st.just({"role": "developer", "content": "d"}), min_size=1, max_size=6)


def compact(body: dict[str, Any], pieces: list[Any], finish: Finish = CUT) -> dict[str, Any]:
    """Compact by the route of its own; return the answer."""
    named = {"request_id": "r", "tokens_max": 4096, "timeout_s": 60.0}
    call = COMPACT.parse(json.dumps({"model": "fast"} | body).encode(), {}, **named)
    assert not call.stream
    collector = COMPACT.collector(call, None)  # type: ignore[arg-type]
    collector.take(pieces)
    answered: dict[str, Any] = json.loads(collector.body("fast", finish))
    return answered


@given(ITEMS, WORDS)
def test_no_message_of_the_user_is_lost(items, summary):
    """What `compact` answers with is the user's messages as they were, in their order, and behind them the summary; in
    OpenAI's own form. Sent back, it is those messages and the summary."""
    answered = compact({"input": items}, [Reasoning("hm"), Text(summary)])
    *users, last = answered["output"]
    ResponseCompactionItem.model_validate(last)
    CompactedResponse.model_validate(answered | {"output": [last]})
    asked = [item["content"] for item in items if item["role"] == "user"]

    assert [item["content"][0]["text"] for item in users] == asked
    assert open_seal(last["encrypted_content"]) == summary
    back = parse({"model": "fast", "input": answered["output"]}).request.messages
    assert [message["content"] for message in back] == [*asked, SUMMARY_HEAD + summary]
    assert {message["role"] for message in back} == {"user"}


@given(ANSWERS, FINISHES)
def test_a_trigger_is_answered_with_one_summary(batches, finish):
    """Whatever the model writes, and where it is cut, the stream has one item, the summary, and is complete; its events
    come in OpenAI's order. Codex takes nothing else."""
    pieces = [[piece for piece in batch if isinstance(piece, Text | Reasoning)] for batch in batches]
    events = stream(parse({"model": "fast", "input": [SAID, TRIGGER], "tools": TOOLS}), pieces, finish)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    said = "".join(piece.text for batch in pieces for piece in batch if isinstance(piece, Text))

    assert [item["type"] for item in done] == ["compaction"]
    assert open_seal(done[0]["encrypted_content"]).replace("\n", "") == said.replace("\n", "")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["output"] == done
    assert not events[-1]["response"]["store"]


def test_the_whole_conversation_is_shown_and_nothing_else_asked_for():
    """The model reads every message, and then the order to summarize; it may call no tool, and the form that was wanted
    of an answer isn't the summary's."""
    form = {"format": {"type": "json_object"}}
    body = {"model": "fast", "instructions": "Be good.", "tools": TOOLS, "text": form, "store": True}
    call = parse(body | {"input": [{"role": "user", "content": "go"}, CALL, OUTPUT, SAID, TRIGGER]})
    request = call.request

    roles = [message["role"] for message in request.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert request.messages[-1]["content"] == SUMMARY_ORDER
    assert (request.tool_choice, request.response_format, call.form) == ("none", None, None)
    assert request.tools
    assert any("store" in note for note in call.notes)


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary", "context_compaction"])
@pytest.mark.parametrize("sealed", ["gAAAAABabc", None, 5, "mlxs1.%"])
def test_the_summary_of_another_server_is_left_out_with_a_note(kind, sealed):
    """Nobody here can read it; the request goes on without it."""
    summary = {"type": kind, "encrypted_content": sealed}
    call = parse({"model": "fast", "input": [{"role": "user", "content": "hi"}, summary]})

    assert [message["content"] for message in call.request.messages] == ["hi"]
    assert call.notes[0] == FOREIGN_SUMMARY


def test_an_answer_that_breaks_off_shows_no_summary():
    """Half of a summary stands for nothing."""
    writer = RESPONSES.writer(parse({"model": "fast", "input": [SAID, TRIGGER]}), None)  # type: ignore[arg-type]
    events = read_frames(writer.chunks("fast", [Text("Half")]) + writer.error(ApiError("stream_broken", "gone"), None))

    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["output"] == []
