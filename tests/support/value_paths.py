"""The ways of one call's arguments: out of a model's text, or of an upstream's chunks, through a judgement, into each
dialect, whole and streamed, and out of the official SDKs' models."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from pydantic import TypeAdapter

from deployments.api.anthropic.messages_render import _MessageCollector, _MessageWriter
from deployments.api.openai_chat import ChatCall
from deployments.api.openai_render import CHAT
from deployments.api.openai_responses.response_body import parse_response
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
_WANTED = {"request_id": "r", "tokens_max": 4096, "timeout_s": 60.0}
RESPONSE_CALL: ChatCall = parse_response(b'{"model": "fast", "input": "hi", "store": false}', {}, **_WANTED)
CHAT_CALL: ChatCall = CHAT.parse(b'{"messages": [{"role": "user", "content": "hi"}]}', {}, **_WANTED)

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


# --- the dialects, each whole and streamed --------------------------------------------------------------------------


def chat_whole(events: list[Event], finish: Finish) -> Given:
    collector = CHAT.collector(CHAT_CALL, RUN)
    collector.take(events)
    message = ChatCompletion.model_validate_json(collector.body("fast", finish)).choices[0].message
    return [
        (c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls or () if c.type == "function"
    ]


def chat_streamed(events: list[Event], finish: Finish) -> Given:
    writer = CHAT.writer(CHAT_CALL, RUN)
    found: dict[int, list[str]] = {}
    for data in _frames(writer.chunks("fast", events) + writer.last("fast", finish, {})):
        for choice in ChatCompletionChunk.model_validate(data).choices if data.get("choices") else ():
            for call in choice.delta.tool_calls or ():
                known = found.setdefault(call.index, ["", ""])
                assert call.function is not None
                known[0] += call.function.name or ""
                known[1] += call.function.arguments or ""
    return [(name, json.loads(arguments)) for name, arguments in found.values()]


def messages_whole(events: list[Event], finish: Finish) -> Given:
    collector = _MessageCollector(answer_id="msg_1", thinking=False, run=RUN)
    collector.take(events)
    message = Message.model_validate(json.loads(collector.body("fast", finish)))
    return [(block.name, block.input) for block in message.content if block.type == "tool_use"]


def messages_streamed(events: list[Event], finish: Finish) -> Given:
    """Messages, as the events that Anthropic's SDK accumulates."""
    writer = _MessageWriter(answer_id="msg_1", thinking=False, run=RUN)
    message: Any = None
    buffers: dict[int, bytes] = {}
    for data in _frames(writer.chunks("fast", events) + writer.last("fast", finish, {})):
        message = accumulate_event(event=EVENT.validate_python(data), current_snapshot=message, json_bufs=buffers)
    return [(block.name, block.input) for block in message.content if block.type == "tool_use"]


def responses_whole(events: list[Event], finish: Finish) -> Given:
    collector = RESPONSES.collector(RESPONSE_CALL, RUN)
    collector.take(events)
    return _read_items(json.loads(collector.body("fast", finish)))


def responses_streamed(events: list[Event], finish: Finish) -> Given:
    """Responses, as events: the deltas, and the complete response in the last one."""
    writer = RESPONSES.writer(RESPONSE_CALL, RUN)
    frames = list(_frames(writer.chunks("fast", events) + writer.last("fast", finish, {})))
    deltas: dict[int, str] = {}
    for frame in frames:
        if frame["type"] == "response.function_call_arguments.delta":
            deltas[frame["output_index"]] = deltas.get(frame["output_index"], "") + frame["delta"]
    given = _read_items(frames[-1]["response"])
    assert [json.loads(arguments) for arguments in deltas.values()] == [arguments for _, arguments in given]
    return given


def _read_items(response: dict[str, Any]) -> Given:
    output = Response.model_validate(response).output
    return [(item.name, json.loads(item.arguments)) for item in output if item.type == "function_call"]


def _frames(sent: bytes) -> Iterator[dict[str, Any]]:
    for line in sent.split(b"\n"):
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


WAYS: dict[str, Callable[[list[Event], Finish], Given]] = {
    "chat": chat_whole,
    "chat, streamed": chat_streamed,
    "messages": messages_whole,
    "messages, streamed": messages_streamed,
    "responses": responses_whole,
    "responses, streamed": responses_streamed,
}


def deliver(events: list[Event], judged: Judged, way: str) -> Given:
    """Send an answer in one way; return the calls as its client has them."""
    finish = replace(judged.finish, reason=FinishReason.TOOL_CALLS)
    given = WAYS[way](events, finish)
    assert len(given) == sum(isinstance(event, CallDelta) for event in events)
    return given
