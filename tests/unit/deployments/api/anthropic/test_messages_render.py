"""Anthropic's answers: what leaves is what its own SDK declares, in its order, and says the same whole and streamed."""

import json
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import ErrorResponse, Message, RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from deployments.api.anthropic.messages_render import _message_error, _MessageCollector, _MessageWriter
from deployments.errors import TABLE, ApiError
from reliability.types import CallDelta, Finish, FinishReason, Reasoning, Refusal, Text, Usage
from tests.support.anthropic_values import answers, finishes
from tests.support.run_values import request_of, run_of

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
STOPS = ("END",)
# Each event, and what may follow it.
FOLLOWS = {
    "": {"message_start"},
    "message_start": {"content_block_start", "message_delta"},
    "content_block_start": {"content_block_delta", "content_block_stop"},
    "content_block_delta": {"content_block_delta", "content_block_stop"},
    "content_block_stop": {"content_block_start", "message_delta"},
    "message_delta": {"message_stop"},
    "message_stop": set(),
}
DELTAS = {"text": {"text_delta"}, "tool_use": {"input_json_delta"}, "thinking": {"thinking_delta", "signature_delta"}}


def collector(thinking: bool = True) -> _MessageCollector:
    return _MessageCollector(answer_id="msg_1", thinking=thinking, run=run_of(request_of("hi", stop=STOPS)))


def writer(thinking: bool = True) -> _MessageWriter:
    return _MessageWriter(answer_id="msg_1", thinking=thinking, run=run_of(request_of("hi", stop=STOPS)))


def events_of(sent: bytes) -> list[dict[str, Any]]:
    frames = [frame.split("\n") for frame in sent.decode().split("\n\n") if frame and not frame.startswith(":")]
    assert all(len(frame) == 2 and frame[0].startswith("event: ") for frame in frames)
    events = [json.loads(frame[1].removeprefix("data: ")) for frame in frames]
    assert [frame[0].removeprefix("event: ") for frame in frames] == [event["type"] for event in events]
    return events


def stream(batches: list[Any], finish: Finish, *, thinking: bool) -> list[dict[str, Any]]:
    out = writer(thinking)
    sent = b"".join(out.chunks("fast", batch) for batch in batches)
    return events_of(sent + out.last("fast", finish, {"outcome": "answered"}))


@given(answers(), finishes, st.booleans())
def test_events_come_in_their_order_and_form(batches, finish, thinking):
    """Every event is one that the SDK declares, none misses a field, each follows one that it may follow, the indexes
    of blocks count up, a delta is of its block's kind, and the report is on the last one."""
    events = stream(batches, finish, thinking=thinking)
    before, block = "", ("", -1)
    for event in events:
        EVENT.validate_python(event, strict=True)
        assert event["type"] in FOLLOWS[before]
        before = event["type"]
        if before == "content_block_start":
            assert event["index"] == block[1] + 1
            block = (event["content_block"]["type"], event["index"])
        elif before == "content_block_delta":
            assert event["index"] == block[1]
            assert event["delta"]["type"] in DELTAS[block[0]]
        elif before == "content_block_stop":
            assert event["index"] == block[1]

    assert before == "message_stop"
    assert events[-1]["mlx_stack"] == {"outcome": "answered"}


def accumulated(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What the SDK's own client makes of a stream."""
    snapshot, buffers = None, {}
    for event in events:
        snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)  # type: ignore[arg-type]
    assert snapshot is not None
    return snapshot.to_dict()


@given(answers(), finishes, st.booleans())
def test_a_stream_says_what_the_whole_answer_says(batches, finish, thinking):
    """The SDK accumulates a stream to the very message that a client gets at once; neighbouring blocks of one kind are
    one there. Texts, thoughts, calls, the reason and the tokens are the same."""
    whole = collector(thinking)
    for batch in batches:
        whole.take(batch)
    message = json.loads(whole.body("fast", finish))
    Message.model_validate(message, strict=True)
    streamed = accumulated(stream(batches, finish, thinking=thinking))

    assert {k: v for k, v in streamed.items() if k != "content"} == {k: v for k, v in message.items() if k != "content"}
    for kind, name in (("text", "text"), ("thinking", "thinking")):
        for one in (streamed, message):
            one[kind] = "".join(block[name] for block in one["content"] if block["type"] == kind)
        assert streamed[kind] == message[kind]
    # AI SDK 6 reads no `citations: null`: what the SDK leaves out isn't sent as null.
    assert all(None not in block.values() for block in message["content"])
    calls = [[block for block in one["content"] if block["type"] == "tool_use"] for one in (streamed, message)]
    assert calls[0] == calls[1]
    assert thinking or not message["thinking"]


def test_tokens_of_the_cache_are_told_apart():
    """What a prompt cache gave is `cache_read_input_tokens`; `input_tokens` are the others, and both together the
    prompt."""
    finish = Finish(
        reason=FinishReason.STOP,
        usage=Usage(prompt_tokens=100, cached_tokens=90, completion_tokens=5, reasoning_tokens=2),
    )
    usage = json.loads(collector().body("fast", finish))["usage"]

    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (10, 90, 5)
    assert usage["output_tokens_details"] == {"thinking_tokens": 2}


def test_the_prompt_is_estimated_until_it_is_counted():
    """`message_start` says the tier's own count where there is one by then, else an estimate, and never nothing."""
    early, late = writer(), writer()
    late.run.counted = Usage(prompt_tokens=40, cached_tokens=30)
    early.run.prompt_bytes = 400
    starts = [events_of(one.chunks("fast", [Text("a")]))[0]["message"]["usage"] for one in (early, late)]

    assert [start["input_tokens"] for start in starts] == [100, 10]
    assert starts[1]["cache_read_input_tokens"] == 30


def test_a_silence_is_a_ping_once_the_message_has_begun():
    """Before, it is a comment: the SDK takes nothing in front of `message_start`."""
    out = writer()

    assert out.silence("fast").startswith(b": ")
    out.chunks("fast", [Text("a")])
    assert events_of(out.silence("fast")) == [{"type": "ping"}]


def test_what_breaks_off_ends_in_an_error():
    """The error has Anthropic's shape and ours beside it, and nothing follows it."""
    out = writer()
    out.chunks("fast", [Text("a")])
    (event,) = events_of(out.error(ApiError("stream_broken", "it broke"), {"outcome": "broken_stream"}))

    assert (event["type"], event["error"]["type"], event["error"]["code"]) == ("error", "api_error", "stream_broken")
    assert event["mlx_stack"] == {"outcome": "broken_stream"}


def test_the_stop_sequence_is_named_where_it_is_the_clients():
    """`stop_sequence` with its text; what a server says that is none of the request's sequences ends the turn."""
    ends = [Finish(reason=FinishReason.STOP, stop=stop) for stop in ("END", "eos", None)]
    told = [json.loads(collector().body("fast", end)) for end in ends]

    assert [(one["stop_reason"], one["stop_sequence"]) for one in told] == [
        ("stop_sequence", "END"),
        ("end_turn", None),
        ("end_turn", None),
    ]


@pytest.mark.parametrize("thinking", [False, True])
def test_a_refusal_is_told_as_text(thinking):
    """Its words are a block of text, as the API has no other place for them, and the stop reason says what it is."""
    whole = collector(thinking)
    whole.take([Refusal("No.")])
    told = json.loads(whole.body("fast", Finish(reason=FinishReason.STOP)))
    end = stream([[Refusal("No.")]], Finish(reason=FinishReason.STOP), thinking=thinking)[-2]

    assert told["content"] == [{"type": "text", "text": "No."}]
    assert told["stop_reason"] == end["delta"]["stop_reason"] == "refusal"


def test_calls_side_by_side_are_blocks_of_their_own():
    """Two calls in one batch, each with its id, name and complete input."""
    calls = [CallDelta(index=i, id=f"call_{i}", name="f", arguments=f'{{"i": {i}}}') for i in range(2)]
    events = stream([[Reasoning("hm"), *calls]], Finish(reason=FinishReason.TOOL_CALLS), thinking=False)
    message = accumulated(events)

    assert [(block["id"], block["input"]) for block in message["content"]] == [
        ("call_0", {"i": 0}),
        ("call_1", {"i": 1}),
    ]
    assert message["stop_reason"] == "tool_use"


def test_arguments_leave_to_the_digit():
    """A long integer keeps its digits; half a character, which only unchecked arguments hold, is U+FFFD; and what is no
    object stays readable, in an object."""
    given = {
        '{"n": 12345678901234567890123, "x": 1.0}': {"n": 12345678901234567890123, "x": 1.0},
        '{"a": "\\ud83d \\ud83d\\ude00"}': {"a": "\ufffd 😀"},
        "": {},
        "[1]": {"arguments": "[1]"},
        "{": {"arguments": "{"},
    }
    for arguments, wanted in given.items():
        whole = collector()
        whole.take([CallDelta(index=0, id="c", name="f", arguments=arguments)])
        content = json.loads(whole.body("fast", Finish(reason=FinishReason.TOOL_CALLS)))["content"]
        assert repr(content[0]["input"]) == repr(wanted)


SHAPE: TypeAdapter[Any] = TypeAdapter(ErrorResponse)
UNKNOWN = {"request_too_large"}  # Anthropic's documentation has it, its SDK's types haven't


@pytest.mark.parametrize("code", TABLE)
def test_every_error_has_the_shape(code: str):
    """The SDK reads each row of the table as one of its own errors; the row's code and the request's id stand in it."""
    body = _message_error(ApiError(code, "no", param="p"), "req-1")
    (event,) = events_of(writer().error(ApiError(code, "no", param="p"), None))

    assert (event["error"], body["error"]["type"].endswith(("_error", "_too_large"))) == (body["error"], True)
    if body["error"]["type"] not in UNKNOWN:
        SHAPE.validate_python(body, strict=True)
    assert (body["error"]["code"], body["error"]["param"], body["request_id"]) == (code, "p", "req-1")


KINDS = {
    **dict.fromkeys(("loop_detected", "budget_exceeded", "invalid_answer", "no_tier_configured"), "billing_error"),
    **dict.fromkeys(("context_length_exceeded", "unsupported", "invalid_tools"), "invalid_request_error"),
    "rate_limit_exceeded": "rate_limit_error",
    "no_tier_available": "overloaded_error",
    "upstream_error": "api_error",
}


@pytest.mark.parametrize(("code", "kind"), KINDS.items())
def test_what_stays_has_the_type_at_which_claude_code_gives_up(code: str, kind: str):
    """A refusal for good is asked for once; what passes, and what is the request's own fault, says which it is. When to
    come back from a loop is told as in every dialect, and a prompt that is too long in the words at which it condenses
    its history."""
    error = _message_error(ApiError(code, "no", retry_after_s=5), "r")["error"]
    assert (error["type"], error.get("retry_after")) == (kind, 5 if code == "loop_detected" else None)
    assert error["message"].startswith("prompt is too long: ") is (code == "context_length_exceeded")
