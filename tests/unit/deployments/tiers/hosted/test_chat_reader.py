"""Chunks that can't be read amid chunks that can: skipped and told of, and never the end of a good answer; but no call
is made of what is left of a damaged one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.hosted.chat_reader import SKIPPED_MAX, ChatReader
from reliability.types import CallDelta, Counted, Event, Failed, Fault, Finish, Usage
from tests.support import plays
from tests.support.tier_asking import failed, text_of

WORDS = [plays.chunk({"content": f"w{n} "}) for n in range(6)]
END = b"".join(send.data for send in plays.tail())
# What proxies and servers were seen to put between chunks, and what they might.
NOISE: dict[str, bytes] = {
    "comment": b": OPENROUTER PROCESSING\n\n",
    "plain words": b"data: OPENROUTER PROCESSING\n\n",
    "web page": b"data: <html><body>504 Gateway Time-out</body></html>\n\n",
    "empty data": b"data:\n\ndata: \n\n",
    "unknown event": b'event: ping\ndata: {"type": "ping"}\n\n',
    "keep-alive": b"event: keep-alive\ndata: null\n\n",
    "number": b"data: 17\n\n",
    "list": b'data: ["a", 1]\n\n',
    "text": b'data: "hello"\n\n',
    "no choices": b'data: {"id": "gen-1", "object": "chat.completion.chunk"}\n\n',
}
TORN: dict[str, bytes] = {
    "cut": b'data: {"choices": [{"index": 0, "delta": {"content": "lo\n\n',
    "head lost": b'data: "delta": {"content": "lost"}}]}\n\n',
    "two in one": b'data: {"choices": []}{"choices": [{"delta": {"content": "lost"}}]}\n\n',
    "content is a number": b'data: {"choices": [{"index": 0, "delta": {"content": 42}}]}\n\n',
    "calls are a text": b'data: {"choices": [{"index": 0, "delta": {"tool_calls": "lost"}}]}\n\n',
    "a call is a text": b'data: {"choices": [{"index": 0, "delta": {"tool_calls": ["lost"]}}]}\n\n',
}


# What may stand where a piece of the answer belongs, and isn't one.
SHAPES = [7, 1.5, True, "lost", ["lost"], [7], [None], {"content": "lost"}, {"index": 0, "delta": {"content": "lost"}}]
MISSHAPEN = [
    {"choices": [{"index": 0, key: value}]} if key else {"choices": value}
    for key in ("", "delta", "message")
    for value in SHAPES
    if not (key and isinstance(value, dict))
]


def read(*sends: bytes, cut: bool = False, strict: bool = False) -> list[Event]:
    reader, events = ChatReader("premium", str, strict=strict), []
    for data in sends:
        if not reader.over:
            events += reader.feed(data)
    return events if reader.over else [*events, *reader.end(cut=cut)]


@pytest.mark.parametrize("noise", NOISE)
@given(at=st.integers(0, len(WORDS)))
def test_what_is_no_chunk_changes_nothing(noise: str, at: int) -> None:
    """Wherever it comes, before the first word or behind the last: the answer is whole, and nothing is missing."""
    *_, last = events = read(*WORDS[:at], NOISE[noise], *WORDS[at:], END)

    assert text_of(events) == "w0 w1 w2 w3 w4 w5 "
    assert isinstance(last, Finish)
    assert last.usage == Usage(prompt_tokens=11, completion_tokens=7, cached_tokens=4, reasoning_tokens=2)
    assert not last.damaged
    assert bool(last.notes) == (noise not in ("comment", "empty data"))


@pytest.mark.parametrize("torn", TORN)
@given(at=st.integers(0, len(WORDS)))
def test_a_torn_chunk_is_told_of(torn: str, at: int) -> None:
    """It may have held a word: the rest is delivered, the notes say so, and the answer counts as damaged."""
    *_, last = events = read(*WORDS[:at], TORN[torn], *WORDS[at:], END)

    assert text_of(events) == "w0 w1 w2 w3 w4 w5 "
    assert last.damaged
    assert last.notes == ("tier premium: left out what can't be read (1 chunks); a piece of the answer may be missing",)


@pytest.mark.parametrize("chunk", MISSHAPEN)
@given(at=st.integers(0, len(WORDS)))
def test_a_chunk_of_another_shape_ends_the_answer(chunk: object, at: int) -> None:
    """Law: where it has another shape than a chunk's a piece is lost: what came before it is delivered, and a fault
    ends it, so that no text with a gap counts as complete. Behind the finish reason no piece can be lost."""
    frame = b"data: " + json.dumps(chunk).encode() + b"\n\n"
    *_, last = events = read(*WORDS[:at], frame, *WORDS[at:], END)

    assert text_of(events) == "".join(f"w{n} " for n in range(at))
    assert last.fault is Fault.PROTOCOL
    assert isinstance(read(*WORDS, plays.chunk({}, "stop"), frame, b"data: [DONE]\n\n")[-1], Finish)


LATE = {
    "frame": plays.frame({"error": {"message": "usage service is away", "code": 500}}),
    "event": b'event: error\ndata: {"message": "usage service is away"}\n\n',
    "object": plays.frame({"object": "error", "message": "away"}),
    "choice": plays.chunk({}, "error"),
    "written": plays.frame({"error": {"message": "max_tokens: could not finish the message because max_tokens was"}}),
    "garbage": NOISE["plain words"] * (SKIPPED_MAX + 1),
}


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls"])
def test_no_error_undoes_an_answer_that_is_complete(late: bytes, reason: str) -> None:
    """Law: what comes behind the finish reason is not about the answer, which ends as it was; the same before it, or in
    one chunk with it, ends it in a fault."""
    call = [plays.chunk({"tool_calls": [CALLED]})] if reason == "tool_calls" else []
    *_, last = events = read(*WORDS, *call, plays.chunk({}, reason), late)

    assert text_of(events) == "w0 w1 w2 w3 w4 w5 "
    assert (type(last), last.reason.value) == (Finish, reason)
    assert isinstance(read(*WORDS, *call, late)[-1], Failed)
    assert isinstance(read(*WORDS, *call, plays.chunk({}, reason, error={"message": "no"}), DONE)[-1], Failed)


@pytest.mark.parametrize("choices", [[], None, {}, "", 0])
def test_a_chunk_without_choices_loses_nothing(choices: object) -> None:
    """Law: a chunk that has only counts or a filter's results (Azure) leaves the answer whole, wherever it comes."""
    told = {"choices": choices, "usage": {"prompt_tokens": 1, "completion_tokens": 1}, "prompt_filter_results": [{}]}
    frame = b"data: " + json.dumps(told).encode() + b"\n\n"
    for at in range(len(WORDS) + 1):
        *_, last = events = read(*WORDS[:at], frame, *WORDS[at:], END)
        assert text_of(events) == "w0 w1 w2 w3 w4 w5 "
        assert not last.damaged


@pytest.mark.parametrize("torn", TORN)
def test_data_with_a_piece_missing_is_no_answer(torn: str) -> None:
    """Where the answer has to be JSON it would be other data; a torn chunk behind the finish reason held none of it."""
    assert failed(read(*WORDS, TORN[torn], END, strict=True)).fault is Fault.PROTOCOL
    finished = plays.chunk({}, "stop")
    late = read(*WORDS, finished, TORN["cut"], b"data: [DONE]\n\n", strict=True)[-1]
    assert not late.damaged
    assert late.notes


@pytest.mark.parametrize("bad", [*NOISE.values(), *TORN.values()])
def test_nothing_but_what_can_not_be_read_is_a_fault(bad: bytes) -> None:
    """No answer ends well of which nothing was read: with an end of its own, with none, and cut."""
    whole = read(bad, plays.chunk({}, "stop"), b"data: [DONE]\n\n")[-1]
    assert isinstance(whole, Failed if bad in TORN.values() else Finish)  # an empty answer is judged elsewhere
    assert isinstance(read(bad)[-1], Failed)
    assert isinstance(read(bad, cut=True)[-1], Failed)


def test_what_can_not_be_read_is_skipped_a_bounded_number_of_times() -> None:
    """A server that sends garbage for ever is broken."""
    garbage = [NOISE["plain words"], WORDS[0]]
    assert isinstance(read(*garbage * SKIPPED_MAX, END)[-1], Finish)
    assert failed(read(*garbage * (SKIPPED_MAX + 1), END)).fault is Fault.PROTOCOL


@pytest.mark.parametrize("beat", ["null", "[]", '""', "{}"])
def test_what_keeps_a_connection_open_ends_no_answer(beat: str) -> None:
    """Law: values that hold nothing may come as often as the upstream likes, through minutes of thought, and say
    nothing of whether the answer is complete."""
    beats = [f"data: {beat}\n\n".encode()] * (2 * SKIPPED_MAX)
    for end in (END, DONE):
        *_, last = events = read(*beats, *WORDS, *beats, end)
        assert text_of(events) == "w0 w1 w2 w3 w4 w5 "
        assert isinstance(last, Finish)
        assert not last.damaged
    assert isinstance(read(*WORDS, *beats)[-1], Failed)


@pytest.mark.parametrize("said", ["null", "None", ""])
def test_no_finish_reason_in_words_is_none(said: str) -> None:
    """Law: an answer whose chunks say `null` (iFlytek, KoboldCpp) is cut where its connection is, and complete with the
    reason of its last one."""
    parts = [plays.chunk({"content": f"w{at} "}, said) for at in range(6)]
    for cut in (True, False):
        assert failed(read(*parts, cut=cut)).fault is Fault.CRASHED
    *_, last = events = read(*parts, plays.chunk({}, "length"), DONE)
    assert (text_of(events), last.reason.value, last.notes) == ("w0 w1 w2 w3 w4 w5 ", "length", ())


def test_a_call_with_a_piece_missing_says_so() -> None:
    """Whole as JSON, and another call than was meant: who judges it must know."""
    pieces = ['{"path": "/home/', "someone/", 'notes"}']
    head = {"index": 0, "id": "c", "function": {"name": "delete", "arguments": pieces[0]}}
    middle = plays.chunk({"tool_calls": [{"index": 0, "function": {"arguments": pieces[1]}}]})[:-12] + b"\n\n"
    last = plays.chunk({"tool_calls": [{"index": 0, "function": {"arguments": pieces[2]}}]})
    sends = (plays.chunk({"tool_calls": [head]}), middle, last, b"".join(s.data for s in plays.tail("tool_calls")))
    *calls, end = read(*sends)

    arguments = "".join(call.arguments for call in calls if isinstance(call, CallDelta))
    assert (json.loads(arguments), end.damaged) == ({"path": "/home/notes"}, True)


def test_a_line_that_the_cut_tore_is_a_cut() -> None:
    """The last line of a broken connection says nothing of the upstream's JSON."""
    assert failed(read(*WORDS, b'data: {"choices": [{"del', cut=True)).fault is Fault.CRASHED
    assert failed(read(*WORDS, b'data: {"choices": [{"del\n\n', cut=True)).fault is Fault.PROTOCOL


@given(st.lists(st.sampled_from(["w ", "two words and more than that ", "你好"]), min_size=1, max_size=30))
def test_what_was_written_is_counted_before_anybody_else_counts(pieces: list[str]) -> None:
    """Each list that leaves brings the count of all so far, also the one that a cut ends: a token a short piece."""
    reader = ChatReader("premium", str)
    told = []
    for piece in pieces:
        events = reader.feed(plays.chunk({"content": piece}))
        told += [event.usage.completion_tokens for event in events if isinstance(event, Counted)]
        assert isinstance(events[-1], Counted)
    assert isinstance(reader.end(cut=True)[-1], Failed)
    assert told == sorted(told)
    assert told[-1] >= len(pieces)


DONE = b"data: [DONE]\n\n"
CALLED = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}


def _parts(text: str) -> bytes:
    return plays.chunk({"tool_calls": [CALLED | {"function": {"name": "f", "arguments": text}}]})


@pytest.mark.parametrize("chunks", [WORDS[:2], [plays.chunk({"tool_calls": [CALLED]})], [*WORDS[:1], _parts("")]])
def test_done_ends_an_answer(chunks: list[bytes]) -> None:
    """Law: `[DONE]` without a finish reason ends an answer in which nothing is missing."""
    assert isinstance(read(*chunks, DONE)[-1], Finish)
    assert isinstance(read(*chunks)[-1], Failed)


@pytest.mark.parametrize("chunks", [[], [_parts('{"x": ')], [*WORDS[:1], TORN["cut"]]])
def test_done_ends_nothing_that_is_cut(chunks: list[bytes]) -> None:
    """Law: no answer, arguments that break off, or a torn chunk before it: the answer is broken."""
    assert failed(read(*chunks, DONE)).fault is Fault.PROTOCOL


def test_an_error_field_is_an_error() -> None:
    """Law: llama.cpp's `error:` field ends the answer, with what it says."""
    field = b'error: {"code": 400, "message": "too long", "type": "exceed_context_size_error"}\n\n'
    assert failed(read(*WORDS[:2], field, DONE)).fault is Fault.CONTEXT_LENGTH


PROBLEMS = [
    {"detail": "out of memory"}, {"message": "upstream request timeout"}, {"code": 500, "msg": "boom"},
    {"choices": None, "base_resp": {"status_code": 1013, "status_msg": "internal error"}},
    {"error_code": 336100, "error_msg": "try again"}, {"errors": [{"message": "boom"}]},
    {"status": 500, "title": "Internal Server Error"}, {"success": False}, {"error_message": "boom"}, {"error": {}},
    {"fault": "of a form that nobody knows"},
]  # fmt: skip


@pytest.mark.parametrize("problem", PROBLEMS)
def test_an_error_of_any_form_ends_no_answer_well(problem: dict[str, object]) -> None:
    """Law: half an answer, an object that is no chunk of an answer, and `[DONE]`: the answer is broken."""
    last = read(*WORDS[:2], b"data: " + json.dumps(problem).encode() + b"\n\n", DONE)[-1]

    assert isinstance(last, Failed)
    said = [str(value) for value in problem.values() if isinstance(value, str)]
    assert last.fault is Fault.PROTOCOL or any(words in last.message for words in said) or not said


TEXT_PARTS = ["a", {"type": "text", "text": "a"}]
OTHER_PARTS = [{"type": kind, "text": "a"} for kind in (["text"], {"text": {}}, [], {}, None, 7, True)]


@pytest.mark.parametrize("part", [*TEXT_PARTS, *OTHER_PARTS, 7, {"type": "image_url", "image_url": {"url": "x"}}])
def test_a_part_that_is_no_text_is_told_of(part: object) -> None:
    """Law: a content of parts is read where each is text, also a bare one; what else it holds leaves a note."""
    last = read(WORDS[0], plays.chunk({"content": [part]}), END)[-1]

    assert last.damaged is (part not in TEXT_PARTS)


def read_call(key: str, given: str, *, whole: bool) -> list[Event]:
    call = f'{{"index": 0, "id": "c", "function": {{"name": "f", {key}:{given}}}}}'
    told = "message" if whole else "delta"
    body = f'{{"choices": [{{"{told}": {{"tool_calls": [{call}]}}, "finish_reason": "tool_calls"}}]}}'
    reader = ChatReader("premium", str)
    return [*reader.feed(body.encode() if whole else f"data: {body}\n\n".encode()), *reader.end()]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("key", ['"arguments"', '"\\u0061rguments"', '"arguments"' + 20 * " "])
@pytest.mark.parametrize(
    ("given", "is_read"),
    [
        ('{"a": 1, "a": 2}', False),
        ('{"a": 1, "a": true}', False),
        ('{"a": 1, "a": 1.0}', False),
        ('{"a": {"b": [0]}, "a": {"b": [false]}}', False),
        ('{"a": 0.0, "a": -0.0}', False),
        ('{"a": ' + 1_000 * "[" + 1_000 * "]" + "}", False),
        ('{"a": 1, "a": 1}', True),
        ('{"a": 1}', True),
        ('{"a": 12345678901234567890123, "b": [1e22]}', True),
    ],
)
def test_arguments_that_are_no_text_keep_every_digit_and_key(given: str, is_read: bool, key: str, whole: bool) -> None:
    """Law: arguments that an upstream sends as an object say one thing for each key, and each integer to its last
    digit, as those in a text do, however their key is written; else there is no answer."""
    events = read_call(key, given, whole=whole)

    assert isinstance(events[-1], Finish) is is_read
    calls = [event for event in events if isinstance(event, CallDelta)]
    if is_read:
        assert json.loads(calls[0].arguments) == json.loads(given)


def test_arguments_that_are_given_twice_are_none() -> None:
    """Law: of two texts of arguments neither counts."""
    assert isinstance(read_call('"arguments"', '"{}", "arguments": "[1]"', whole=True)[-1], Failed)
