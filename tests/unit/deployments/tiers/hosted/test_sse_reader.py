"""The reading of a body: frames and events don't depend on how the network cut the bytes."""

import json
from dataclasses import asdict
from itertools import pairwise

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deployments.tiers.hosted import sse_reader
from deployments.tiers.hosted.chat_chunks import COUNT_MAX
from deployments.tiers.hosted.sse_reader import Frame, SseReader, UnreadableStream
from reliability.types import CallDelta, Failed, Fault, Finish, FinishReason, Reasoning, Text, Usage
from tests.support.chat_chunks import delta, events, one

KINDS = [b"data: a", b"data:b", b"data", b": note", b"event: error", b"", b"", b"data: \xf0\x9f\x8c\x8d", b"id: 1"]
LINES = st.lists(st.sampled_from(KINDS), max_size=24)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
ANSWER = b"".join(
    b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n"
    for chunk in [
        {"choices": [{"delta": {"reasoning": "hm \U0001f30d"}}]},
        {"choices": [{"delta": {"content": "Gr\u00fc\u00dfe \ud83c"}}]},
        {"choices": [{"delta": {"content": "\udf0d ok"}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 3, "function": {"arguments": '{"a"'}}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 3, "id": "c", "function": {"name": "f"}}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 3, "id": "c", "function": {"arguments": ":1}"}}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
    ]
)


def pieces(data: bytes, places: list[int]) -> list[bytes]:
    cuts = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(cuts)]


def frames(parts: list[bytes]) -> list[Frame]:
    reader = SseReader()
    return [frame for part in parts for frame in reader.feed(part)] + reader.close()


@given(LINES, st.lists(ENDS, min_size=24, max_size=24), st.lists(st.integers(0, 400), max_size=12))
def test_frames_do_not_depend_on_the_cuts(lines: list[bytes], ends: list[bytes], places: list[int]) -> None:
    """Law: any cut of the bytes, also inside CRLF and inside a character, gives the same frames."""
    data = b"".join(line + end for line, end in zip(lines, ends, strict=False))
    assert frames(pieces(data, places)) == frames([data])


@settings(max_examples=200)
@given(st.lists(st.integers(0, len(ANSWER)), max_size=12), st.booleans())
def test_events_do_not_depend_on_the_cuts(places: list[int], mark: bool) -> None:
    """Law: the same for the events of an answer, with or without a byte order mark: held pieces, split characters and
    renumbered calls come out as one clean answer."""
    *found, last = events(pieces(b"\xef\xbb\xbf" + ANSWER if mark else ANSWER, places))
    call = CallDelta(index=0, id="c", name="f", arguments='{"a":1}')
    assert found == [Reasoning("hm \U0001f30d"), Text("Grüße \U0001f30d ok"), call]
    assert last == Finish(reason=FinishReason.TOOL_CALLS, usage=Usage(prompt_tokens=1, completion_tokens=2))


@given(st.integers(0, len(ANSWER) - 1))
def test_a_torn_answer_never_looks_finished(place: int) -> None:
    """Law: bytes that stop before the finish reason end in CRASHED, never in Finish and never in PROTOCOL."""
    last = events([ANSWER[:place]])[-1]
    if b'"finish_reason": "tool_calls"}]}' in ANSWER[:place]:
        assert isinstance(last, Finish)
    else:
        assert last.fault is Fault.CRASHED


def test_lines_of_a_frame_are_joined() -> None:
    """Law: several data lines are one payload; comments, ids and unknown fields are not."""
    data = b": hi\rid: 3\nevent: error\r\ndata: a\r\ndata:b\ndata\n\ndata: c\n\n"
    assert frames([data]) == [Frame("a\nb\n", "error"), Frame("c")]


def test_lines_and_frames_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: neither a line without an end nor a frame without an end grows over its bound."""
    monkeypatch.setattr(sse_reader, "LINE_BYTES_MAX", 100)
    monkeypatch.setattr(sse_reader, "FRAME_BYTES_MAX", 300)
    with pytest.raises(UnreadableStream):
        frames([b"data: "] + [b"x" * 10] * 20)
    with pytest.raises(UnreadableStream):
        frames([b"data: " + b"x" * 60 + b"\n"] * 6)
    last = events([b"data: " + b"x" * 200])[-1]
    assert last.fault is Fault.PROTOCOL


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        *((said, "stop") for said in ("stop", "eos", "end_turn", "something new")),
        *((said, "tool_calls") for said in ("function_call", "tool_use")),
        *((said, "length") for said in ("max_tokens", "FINISH_REASON_MAX_TOKENS", "time_limit", "pause_turn")),
        *((said, "length") for said in ("model_context_window_exceeded", "incomplete")),
        *((said, "content_filter") for said in ("SAFETY", "sensitive", "RECITATION", "PROHIBITED_CONTENT", "SPII")),
        *((said, "content_filter") for said in ("content_filter: PROHIBITED", "guardrail_intervened", "ERROR_TOXIC")),
        *((said, None) for said in ("error", "abort", "aborted", "cancel", "canceled", "cancelled", "timeout")),
        *((said, None) for said in ("network_error", "insufficient_system_resource", "server_error", "ERROR_LIMIT")),
        *((said, None) for said in ("USER_CANCEL", "interrupted", "unfinished", "not_finished", "abnormal_stop")),
        *((said, None) for said in ("unsuccessful", "not_complete", "uncompleted", "malformed_function_call")),
        *((said, None) for said in ("MALFORMED_FUNCTION_CALL", "function_call_filter: MALFORMED_FUNCTION_CALL")),
        *((said, None) for said in ("too_many_tool_calls", "unexpected_tool_call")),
    ],
)
def test_finish_reasons_are_those_of_openai(said: str, meant: str | None) -> None:
    """Law: whatever an upstream calls it, it is one of OpenAI's; one that means broken off is a fault."""
    last = one(delta(said, content="x"))[-1]
    assert (last.reason if isinstance(last, Finish) else None) == meant
    assert meant is None or bool(last.notes) is (said == "something new")


UNREADABLE = ["malformed_function_call", "MALFORMED_FUNCTION_CALL", "unexpected_tool_call", "too_many_tool_calls"]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("reasoned", [False, True])
@pytest.mark.parametrize("said", UNREADABLE)
def test_a_call_that_the_upstream_can_not_read_is_the_models_mistake(said: str, reasoned: bool, native: bool) -> None:
    """Law: Gemini's end of an answer that holds nothing but a broken call is an invalid call, of which the model is
    told, and no fault of the tier; without tools it is no call either."""
    choice = {"finish_reason": "error", "native_finish_reason": said} if native else {"finish_reason": said}
    chunk = {"choices": [{"index": 0, "delta": {"reasoning": "Hm."} if reasoned else {"content": ""}, **choice}]}
    for names in ([], ["get_weather"]):
        *_, last = found = one(chunk, names=names)
        assert isinstance(last, Finish), last
        assert last.reason is FinishReason.TOOL_CALLS
        assert [event.name for event in found if isinstance(event, CallDelta)] == [""][: len(names)]


def test_reasoning_has_three_names_and_is_taken_once() -> None:
    """Law: reasoning is found under each of its names, and not doubled where an upstream sends two."""
    assert one(delta(reasoning_content="a", reasoning="a"), delta("stop"))[0] == Reasoning("a")
    assert one(delta(reasoning_details=[{"text": "b"}, {"summary": "c"}]), delta("stop"))[0] == Reasoning("bc")


HUGE = 10**400  # an integer, and no float


@pytest.mark.parametrize("number", [HUGE, 1e30, 2**63], ids=["400 digits", "1e30", "2**63"])
def test_a_count_is_one_that_can_be_written(number: float) -> None:
    """Law: a count that no answer can have is cut to a bound that every JSON library can write."""
    details = {
        "prompt_tokens_details": {"cached_tokens": number},
        "completion_tokens_details": {"reasoning_tokens": -number},
    }
    counted = used({"prompt_tokens": number, "completion_tokens": number, **details})
    assert counted == Usage(prompt_tokens=COUNT_MAX, completion_tokens=COUNT_MAX, cached_tokens=COUNT_MAX)
    assert orjson.dumps(asdict(counted))


@pytest.mark.parametrize("empty", [{}, {"prompt_tokens": None}, {"prompt_tokens": "7"}, {"completion_tokens": True}])
def test_a_usage_without_a_number_is_none(empty: dict[str, object]) -> None:
    """Law: a usage that counts nothing takes nothing away from one that did, and isn't taken for zero tokens."""
    assert used({"prompt_tokens": 5, "completion_tokens": 2.0}, empty) == Usage(prompt_tokens=5, completion_tokens=2)
    assert used(empty) is None
    assert used(empty, {"completion_tokens": 0}) == Usage()


def used(*usages: object) -> Usage | None:
    """What an answer has cost whose upstream says these, one after the other."""
    last = one(delta("stop", content="x"), *({"choices": [], "usage": usage} for usage in usages))[-1]
    assert isinstance(last, Finish)
    return last.usage


KEYS = [
    *("choices", "delta", "message", "content", "tool_calls", "function", "error", "usage", "index", "id", "name"),
    *("arguments", "finish_reason", "reasoning_details", "prompt_tokens", "code", "detail", "metadata", "model"),
]
SCALARS = st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters())
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@example({}, {"usage": {"prompt_tokens": float("inf")}})
@example({}, {"usage": {"prompt_tokens": HUGE, "completion_tokens": -HUGE}})
@example({"tool_calls": [{"function": {"name": "\ud800", "arguments": "\udc00"}}], "content": "\ud800"}, {})
@example({"tool_calls": [{"function": {"name": "f", "arguments": "\ud800"}}]}, {"model": "\ud800"})
@given(JSON, JSON)
def test_any_json_is_read_without_raising(inner: object, outer: object) -> None:
    """Law: whatever JSON an upstream sends, the answer ends once, and all of it can be encoded."""
    found = one({"choices": [{"delta": inner}]}, outer)
    assert sum(isinstance(event, Finish | Failed) for event in found) == 1
    assert isinstance(found[-1], Finish | Failed)
    assert repr([asdict(event) for event in found]).encode("utf-8")
    assert "\\ud8" not in repr(found)
