"""The ways of one call's arguments: out of a model's text, or of an upstream's chunks, through a judgement, into each
dialect, whole and streamed, and out of the official SDKs' models."""

import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, RawMessageStreamEvent
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from pydantic import TypeAdapter

from deployments.api.anthropic.messages_render import MESSAGES
from deployments.api.openai_render import CHAT
from deployments.api.openai_responses.response_events import RESPONSES
from deployments.tiers.hosted.chat_reader import ChatReader
from reliability.answer.judgement import Judged, expect
from reliability.tools import CheckConfig, ToolBox
from reliability.types import CallDelta, Event, Finish, FinishReason, Hold, Started, Text
from tests.support.readings import MESSAGES as HI
from tests.support.readings import open_state
from tests.support.run_values import request_of, run_of

LITERAL = CheckConfig(placeholders=())  # drawn texts may look like placeholders, and are meant here
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
RUN = run_of(request_of("hi"))
Given = list[tuple[str, Any]]


def judge_events(
    batches: Sequence[Sequence[Event]], box: ToolBox, hold: Hold = Hold.TOOL_CALLS
) -> tuple[list[Event], Judged]:
    """Read an answer as an attempt does; return what leaves for the client, and the judgement."""
    reading = open_state(expect(HI, box, id_seed="v", checks=LITERAL), 1_000_000, hold=hold)
    out: list[Event] = []
    for batch in ([Started()], *batches):
        out += reading.take(batch, 0)
    if reading.end is None:
        reading.take([Finish(reason=FinishReason.STOP)], 0)
    out += reading.finish()
    assert reading.judged is not None, reading.end
    return [*out, *reading.judged.events], reading.judged


def cut(text: str, dice: Random, pieces: int) -> list[str]:
    """The text in at most so many pieces, cut anywhere."""
    cuts = sorted(dice.randrange(len(text) + 1) for _ in range(pieces - 1))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if a < b]


def read_text(text: str, box: ToolBox, dice: Random | None = None) -> tuple[list[Event], Judged]:
    """Read a text as it stands, or streamed in random pieces."""
    pieces = [text] if dice is None else cut(text, dice, dice.randint(2, 12))
    return judge_events([[Text(piece)] for piece in pieces], box)


def read_native(name: str, arguments: str, box: ToolBox, dice: Random) -> tuple[list[Event], Judged]:
    """Read a call that an upstream sends as one, its JSON text in random pieces of chunks in random pieces of bytes."""
    frames = []
    for at, piece in enumerate(cut(arguments, dice, dice.randint(1, 5))):
        call: dict[str, Any] = {"index": 0, "function": {"arguments": piece}}
        if at == 0:
            call |= {"id": "call_x", "function": {"name": name, "arguments": piece}}
        frames.append({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
    frames.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    wire = b"".join(b"data: %b\n\n" % json.dumps(frame).encode() for frame in frames) + b"data: [DONE]\n\n"
    reader, batches, at = ChatReader("fast", lambda text: text), [], 0
    while at < len(wire) and not reader.over:
        end = at + dice.randint(1, 200)
        batches.append(reader.feed(wire[at:end]))
        at = end
    return judge_events(batches, box)


def _read_chat(completion: Any) -> Given:
    calls = completion.choices[0].message.tool_calls or ()
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls]


def _gather_chat(frames: list[dict[str, Any]]) -> Given:
    state = ChatCompletionStreamState()
    for frame in frames:
        state.handle_chunk(ChatCompletionChunk.model_validate(frame))
    return _read_chat(state.current_completion_snapshot)


def _read_message(message: Any) -> Given:
    return [(block.name, block.input) for block in message.content if block.type == "tool_use"]


def _gather_message(frames: list[dict[str, Any]]) -> Given:
    message: Any = None
    buffers: dict[int, bytes] = {}
    for frame in frames:
        message = accumulate_event(event=EVENT.validate_python(frame), current_snapshot=message, json_bufs=buffers)
    return _read_message(message)


def _read_response(response: Any) -> Given:
    return [(item.name, json.loads(item.arguments)) for item in response.output if item.type == "function_call"]


def _gather_response(frames: list[dict[str, Any]]) -> Given:
    """Read the deltas, and the complete response in the last event."""
    deltas: dict[int, str] = {}
    for frame in frames:
        if frame["type"] == "response.function_call_arguments.delta":
            deltas[frame["output_index"]] = deltas.get(frame["output_index"], "") + frame["delta"]
    given = _read_response(Response.model_validate(frames[-1]["response"]))
    assert [json.loads(arguments) for arguments in deltas.values()] == [arguments for _, arguments in given]
    return given


HI_BODY = b'{"model": "fast", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}'
# Of each dialect: itself, a call in it, the SDK's model of an answer, and what reads that, whole and streamed.
SPOKEN: dict[str, Any] = {
    "chat": (CHAT, HI_BODY, ChatCompletion, _read_chat, _gather_chat),
    "messages": (MESSAGES, HI_BODY, Message, _read_message, _gather_message),
    "responses": (RESPONSES, b'{"model": "fast", "input": "hi"}', Response, _read_response, _gather_response),
}
_TERMS: Any = {"request_id": "r", "tokens_max": 4096, "timeout_s": 60.0}
CALLS = {name: dialect.parse(body, {}, **_TERMS) for name, (dialect, body, *_) in SPOKEN.items()}
WAYS = tuple(f"{name}{how}" for name in SPOKEN for how in ("", ", streamed"))


def deliver(events: list[Event], judged: Judged, way: str) -> Given:
    """Send an answer in one way; return the calls as its client has them."""
    finish = replace(judged.finish, reason=FinishReason.TOOL_CALLS)
    name = way.partition(",")[0]
    dialect, _, model, read, gather = SPOKEN[name]
    call = CALLS[name]
    if "streamed" in way:
        writer = dialect.writer(call, RUN)
        sent = writer.chunks("fast", events) + writer.last("fast", finish, {})
        given: Given = gather([json.loads(line[6:]) for line in sent.split(b"\n") if line.startswith(b"data: {")])
    else:
        collector = dialect.collector(call, RUN)
        collector.take(events)
        given = read(model.model_validate_json(collector.body("fast", finish)))
    assert len(given) == sum(isinstance(event, CallDelta) for event in events)
    return given
