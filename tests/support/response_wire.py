"""What tests of `/v1/responses` share: requests, generated answers, the events of a stream held against OpenAI's own
typed models and their order."""

import json
from typing import Any

from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from deployments.api.openai_chat import ChatCall
from deployments.api.openai_responses.response_body import parse_response
from deployments.api.openai_responses.response_events import RESPONSES
from reliability.types import (
    CallDelta,
    Event,
    Finish,
    FinishReason,
    Logprobs,
    Reasoning,
    Refusal,
    Text,
    TokenLogprob,
    Usage,
)

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
ENDS = {"response.completed", "response.incomplete", "response.failed"}
# What the typed models know and this server has nothing to say of.
NOT_OURS = {
    "access_programs", "conversation", "image", "input_transformations", "moderation", "prompt",
    "prompt_cache_diagnostics", "prompt_cache_options", "prompt_cache_retention", "tool_usage",
}  # fmt: skip
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {"x": {}}}},
    {"type": "custom", "name": "c", "description": "free text"},
    {"type": "web_search"},
    {"type": "namespace", "name": "n", "description": "d", "tools": []},
]
LOGPROBS = st.builds(
    TokenLogprob,
    raw=st.binary(max_size=4),
    logprob=st.floats(-100, 0),
    top=st.lists(st.tuples(st.binary(max_size=3), st.floats(-100, 0)), max_size=2).map(tuple),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
PIECES = st.one_of(
    TEXTS.map(Text), TEXTS.map(Reasoning), st.lists(LOGPROBS, min_size=1, max_size=3).map(lambda t: Logprobs(tuple(t)))
)
CALLS = st.one_of(
    TEXTS.map(lambda text: ("f", json.dumps({"x": text}))), TEXTS.map(lambda text: ("c", json.dumps({"input": text})))
)
USAGE = st.none() | st.builds(Usage, prompt_tokens=st.integers(0, 99), completion_tokens=st.integers(0, 99))
FINISHES = st.builds(Finish, reason=st.sampled_from(list(FinishReason)), usage=USAGE)


def _draw_answers(pieces: st.SearchStrategy[Any]) -> st.SearchStrategy[list[list[Event]]]:
    """Draw answers as they leave `drive`: batches of pieces, and the calls, if any, in the last one."""
    return st.builds(
        lambda batches, calls: [
            *batches,
            [CallDelta(index=i, id=f"call_{i}", name=one[0], arguments=one[1]) for i, one in enumerate(calls)],
        ],
        st.lists(st.lists(pieces, max_size=4), max_size=4),
        st.lists(CALLS, max_size=3),
    )


ANSWERS = _draw_answers(PIECES)
ANY_ANSWERS = _draw_answers(PIECES | TEXTS.map(Refusal))
FORMS: dict[str, tuple[str, str, str]] = {
    "output_text": ("content_part", "output_text", "text"),
    "refusal": ("content_part", "refusal", "refusal"),
    "reasoning_text": ("content_part", "reasoning_text", "text"),
    "summary_text": ("reasoning_summary_part", "reasoning_summary_text", "text"),
}


def parse(body: dict[str, Any], **named: Any) -> ChatCall:
    named = {"request_id": "r", "tokens_max": 4096, "timeout_s": 60.0} | named
    return parse_response(json.dumps(body).encode(), {}, **named)


def ask(**fields: Any) -> ChatCall:
    """Make the call of a small request with these fields."""
    return parse({"model": "fast", "input": "hi", "tools": TOOLS} | fields)


def stream(call: ChatCall, batches: list[list[Event]], finish: Finish) -> list[dict[str, Any]]:
    writer = RESPONSES.writer(call, None)  # type: ignore[arg-type]
    sent = b"".join(
        [*(writer.chunks("fast", batch) for batch in batches), writer.last("fast", finish, {"tier": "fast"})]
    )
    return read_frames(sent)


def answer(call: ChatCall, batches: list[list[Event]], finish: Finish) -> dict[str, Any]:
    collector = RESPONSES.collector(call, None)  # type: ignore[arg-type]
    for batch in batches:
        collector.take(batch)
    body: dict[str, Any] = json.loads(collector.body("fast", finish))
    return body


def read_frames(sent: bytes) -> list[dict[str, Any]]:
    """Read server-sent events; the name of each is its type."""
    events = []
    for frame in sent.decode().split("\n\n"):
        if not frame or frame.startswith(":"):
            continue
        name, data = frame.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def check_response(response: dict[str, Any]) -> None:
    """Hold a response object against the typed model: every field that it knows is there, and as it is known."""
    Response.model_validate_json(json.dumps(response), strict=True)
    known = {field.alias or name for name, field in Response.model_fields.items()}

    assert known - response.keys() - {"user"} == NOT_OURS  # the user is left out where the request names none


def check_events(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Hold a whole stream against the typed models and OpenAI's order; return the response in its last event."""
    for event in events:
        EVENT.validate_json(json.dumps(event), strict=True)
        if "response" in event:
            check_response(event["response"])
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event["type"] in ENDS for event in events] == [False] * (len(events) - 1) + [True]
    response: dict[str, Any] = events[-1]["response"]
    assert events[-1]["type"] == f"response.{response['status']}"
    # Long silences are filled with the second event.
    assert _read_items([e for e in events[2:-1] if e["type"] != "response.in_progress"]) == response["output"]
    return response


def _read_items(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Read complete items from the events between the first two and the last, each closed before the next begins."""
    items: list[dict[str, Any]] = []
    while events:
        closed = next(i for i, event in enumerate(events) if event["type"] == "response.output_item.done")
        own, events = events[: closed + 1], events[closed + 1 :]
        assert own[0]["type"] == "response.output_item.added"
        assert {event["output_index"] for event in own} == {len(items)}
        items.append(_read_item(own))
    return items


def _read_item(events: list[dict[str, Any]]) -> dict[str, Any]:
    begun, item = events[0]["item"], events[-1]["item"]
    assert (begun["id"], begun["type"]) == (item["id"], item["type"])
    inner = events[1:-1]
    assert {event["item_id"] for event in inner} == {item["id"]}
    if item["type"] in ("message", "reasoning"):
        assert begun["content"] == begun.get("summary", []) == []
        part, kind, given = FORMS[inner[-1]["part"]["type"]]
        assert (inner[0]["type"], inner[-1]["type"]) == (f"response.{part}.added", f"response.{part}.done")
        assert [*item.get("summary", ()), *item["content"]] == [inner[-1]["part"]]
        assert (item["type"] == "reasoning") == kind.startswith("reasoning")
        inner, whole = inner[1:-1], inner[-1]["part"]
    else:
        custom = item["type"] == "custom_tool_call"
        kind, given = ("custom_tool_call_input", "input") if custom else ("function_call_arguments", "arguments")
        whole = item
    *deltas, done = inner
    assert {event["type"] for event in deltas} <= {f"response.{kind}.delta"}
    assert done["type"] == f"response.{kind}.done"
    assert done.get("name") == (item["name"] if item["type"] == "function_call" else None)
    assert "".join(event["delta"] for event in deltas) == done[given] == whole[given]
    if kind == "output_text":
        told = [token for event in deltas for token in event["logprobs"]]
        assert told == done["logprobs"] == whole["logprobs"]
    return item  # type: ignore[no-any-return]
