"""Answers that are passed on as they are: every byte of what they say, and how they end."""

import json
from typing import Any

import orjson
import pytest

from deployments.tiers.hosted.passed_reader import PIECE_BYTES, PassedReader, build_passed_body, cut_list
from reliability.types import ChatRequest, Counted, Event, Fault, Finish, Passed, Usage
from tests.support import plays
from tests.support.plays import Play, Send
from tests.support.tier_asking import ask, exchange

SEEN = Usage(prompt_tokens=11, completion_tokens=7, cached_tokens=4, reasoning_tokens=2)
WHOLE = {"prompt": "Once"}
STREAM = WHOLE | {"stream": True}


def body_of(play: Play) -> bytes:
    return b"".join(act.data for act in play if isinstance(act, Send))


def read(play: Play, body: dict[str, Any], size: int = 10**9, *, cut: bool = False) -> list[Event]:
    """All events of an answer that comes in pieces of `size` bytes."""
    reader = PassedReader("premium", lambda text: text.replace("secret", "***"), body)
    data, events = body_of(play), []
    for at in range(0, len(data), size):
        events += reader.feed(data[at : at + size])
        if reader.over:
            return events
    return events + reader.end(cut=cut)


def objects(events: list[Event]) -> list[Any]:
    return [json.loads(event.data) for event in events if isinstance(event, Passed)]


@pytest.mark.parametrize("size", [1, 7, 10**9])
def test_a_body_stays_as_it_was_but_for_the_model(size):
    """Law: whatever the upstream says leaves as it came, however the network cut it; `model` is the tier."""
    logprobs = {"tokens": ["a"], "token_logprobs": [None], "top_logprobs": [{"a": -0.1}], "text_offset": [0]}
    play = plays.completion("ü 你好", logprobs=logprobs)
    events = read(play, WHOLE, size)

    assert objects(events) == [json.loads(body_of(play)) | {"model": "premium"}]
    assert events[-1] == Finish(reason="stop", usage=SEEN)  # type: ignore[arg-type]


def test_vectors_stay_to_the_last_figure():
    """Law: figures and base64 leave as they came."""
    vectors = [[0.1, -1e-17, 12345.678901234567], "AACAPwAAAEA="]
    (body,) = objects(read(plays.embeddings(*vectors), {"input": "x"}))

    assert [each["embedding"] for each in body["data"]] == vectors


def test_vectors_are_base64_where_that_was_asked_for():
    """Law: a client that asked for base64 gets it, also of an upstream that writes figures whatever is asked."""
    asked = {"input": "x", "encoding_format": "base64"}
    (body,) = objects(read(plays.embeddings([0.25, -1.5], "AACAPgAAwL8="), asked))

    assert [each["embedding"] for each in body["data"]] == ["AACAPgAAwL8="] * 2
    for broken in (["a"], [None], [1e300]):
        assert read(plays.embeddings(broken), asked)[-1].fault is Fault.PROTOCOL


def test_a_large_body_leaves_in_pieces():
    """Law: no piece is larger than a message between replicas may be; together they are the body."""
    vectors = [[i / 7 for i in range(20_000)]] * 2
    events = read(plays.embeddings(*vectors), {"input": "x"})
    pieces = [event.data for event in events if isinstance(event, Passed)]

    assert len(pieces) > 1
    assert all(len(piece) <= PIECE_BYTES for piece in pieces)
    assert orjson.loads(b"".join(pieces))["data"][0]["embedding"] == vectors[0]


@pytest.mark.parametrize(
    "sizes", [[], [1], [PIECE_BYTES], [PIECE_BYTES] * 3, [1, PIECE_BYTES, 1, 1], [PIECE_BYTES * 4]]
)
def test_a_list_leaves_in_parts_that_fit(sizes):
    """Law: no part is larger than a message between replicas may be, unless it is one frame; none is empty, and
    together they are the list."""
    events: list[Event] = [*(Passed(bytes(size)) for size in sizes), Finish(reason="stop")]  # type: ignore[arg-type]
    parts = list(cut_list(events))

    assert [event for part in parts for event in part] == events
    assert all(sum(len(e.data) for e in part if isinstance(e, Passed)) <= max(PIECE_BYTES, *sizes, 0) for part in parts)
    assert all(parts)


@pytest.mark.parametrize("size", [1, 10**9])
@pytest.mark.parametrize("wanted", [True, False])
def test_frames_leave_one_by_one(wanted, size):
    """Law: each frame leaves as it came; that of the usage only where the client asked for it."""
    body = STREAM | ({"stream_options": {"include_usage": True}} if wanted else {})
    events = read(plays.completion_frames("Once", " upon"), body, size)
    frames = objects(events)

    assert [f["choices"][0]["text"] for f in frames if f["choices"]] == ["Once", " upon", ""]
    assert {f["model"] for f in frames} == {"premium"}
    assert ("usage" in frames[-1]) is wanted
    assert isinstance(events[-1], Finish)
    assert events[-1].usage == SEEN


def test_without_a_count_the_pieces_are_counted():
    """Law: an answer whose usage nobody reports has an estimate, from its pieces."""
    events = read(plays.completion_frames("Once", " upon", usage=None), STREAM)
    counted = [event.usage for event in events if isinstance(event, Counted)]

    assert counted == [] or counted[-1].completion_tokens == 2
    assert sum(event.text_bytes for event in events if isinstance(event, Passed)) == len("Once upon")


def test_an_echo_is_nothing_that_was_written():
    """Law: with `echo` the prompt at the head of the answer isn't the model's work."""
    (piece, _) = read(plays.completion("Once upon a time"), {"prompt": "Once upon", "echo": True})

    assert isinstance(piece, Passed)
    assert piece.text_bytes == len(" a time")


def test_an_upstream_may_ignore_the_stream():
    """Law: one JSON body where frames were asked for is one frame."""
    events = read(plays.completion("Once."), STREAM)

    assert [frame["choices"][0]["text"] for frame in objects(events)] == ["Once."]
    assert isinstance(events[-1], Finish)


@pytest.mark.parametrize(
    ("play", "body", "cut", "fault"),
    [
        (plays.completion_frames("Once", finish=None, usage=None), STREAM, False, Fault.CRASHED),
        (plays.completion_frames("Once", finish=None, usage=None), STREAM, True, Fault.CRASHED),
        (plays.whole(b'{"choices": ['), WHOLE, True, Fault.CRASHED),
        (plays.whole(b'{"choices": ['), WHOLE, False, Fault.PROTOCOL),
        (plays.whole(b"[1]"), WHOLE, False, Fault.PROTOCOL),
        (plays.whole(b"{}"), WHOLE, False, Fault.PROTOCOL),
        (plays.completion_frames("Once"), WHOLE, False, Fault.PROTOCOL),
        (plays.whole(b'data: {"choices": [{"te\n\n'), STREAM, False, Fault.PROTOCOL),
        (plays.whole(b'data: {"error": {"code": 502, "message": "gone"}}\n\n'), STREAM, False, Fault.SERVER_ERROR),
        (plays.whole(b'event: error\ndata: {"message": "gone"}\n\n'), STREAM, False, Fault.SERVER_ERROR),
        (plays.whole(b'{"error": {"code": 429, "message": "later"}}'), WHOLE, False, Fault.OVERLOADED),
    ],
)
def test_what_is_no_answer_fails(play, body, cut, fault):
    """Law: an answer that is cut, that can't be read or that is an error never ends as if it were complete."""
    assert read(play, body, cut=cut)[-1].fault is fault


@pytest.mark.parametrize(
    "late", [b'data: {"error": {"message": "gone"}}\n\n', b"event: error\ndata: gone\n\n", b"data: {\n\n"]
)
def test_nothing_behind_the_finish_reason_undoes_an_answer(late):
    """Law: an error or garbage there leaves the answer complete."""
    events = read(plays.whole(body_of(plays.completion_frames("Once"))[: -len(b"data: [DONE]\n\n")] + late), STREAM)

    assert (objects(events)[0]["choices"][0]["text"], type(events[-1])) == ("Once", Finish)


def test_an_error_names_no_secret():
    """Law: the upstream's own words pass the redactor."""
    (failed,) = read(plays.whole(b'{"error": {"code": 400, "message": "key secret is odd"}}'), WHOLE)

    assert "secret" not in failed.message


def request(route: str, **extra: Any) -> ChatRequest:
    return ask(messages=(), max_tokens=5, route=route, extra=extra)


def sent(route: str, **extra: Any) -> Any:
    return orjson.loads(build_passed_body(request(route, **extra), "m"))


def test_the_body_is_the_clients_but_for_what_is_decided_here():
    """Law: unknown fields go out; the model and its substitutes, the cap and the count of answers are ours."""
    given = {"prompt": "Once", "model": "x", "models": ["y"], "n": 3, "max_tokens": 10**6, "suffix": "!", "top_k": 5}
    ours = {"prompt": "Once", "model": "m", "max_tokens": 5, "suffix": "!", "top_k": 5}

    assert sent("/completions", **given) == ours
    assert sent("/completions", prompt="", best_of=2)["max_tokens"] == 2
    assert "max_tokens" not in sent("/embeddings", input="x")
    assert sent("/completions", prompt="", stream=True)["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("route", ["/completions", "/embeddings"])
def test_the_tier_asks_the_route_of_its_own_api(route):
    """Law: the request goes to the route beside chat completions, with the tier's model."""
    play = plays.completion() if route == "/completions" else plays.embeddings([1.0])
    (events,), (seen,) = exchange(play, request(route, prompt="Once", input="x"))

    assert seen.path == f"/api/v1{route}"
    assert isinstance(events[-1], Finish)


@pytest.mark.parametrize("code", [404, 405])
def test_an_upstream_without_the_route_is_not_unwell(code):
    """Law: chats may go on there, so its breaker hears nothing of it, and another tier is asked."""
    ((*_, failed),), _ = exchange(plays.status(code), request("/embeddings", input="x"))

    assert (failed.fault, failed.param) == (Fault.UNSUPPORTED, "model")
    assert "/embeddings" in failed.message
