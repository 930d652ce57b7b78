"""What an attempt has cost: tokens are settled by what an upstream counted, so half a count is none; who was never
reached has spent nothing."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.hosted.chat_chunks import ChunkReader
from deployments.tiers.hosted.chat_reader import ChatReader
from deployments.tiers.hosted.hosted_tier import HostedTier
from reliability.types import CallDelta, Failed, Fault, Finish, Reasoning, Refusal, Text, Usage
from tests.support import plays
from tests.support.tier_asking import answers, ask, failed, play
from tests.support.upstream import Upstream

ZEROS = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
counts = st.integers(0, 10**6)


def counted(prompt: int, completion: int, **more: object) -> dict[str, object]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, **more}


CACHED = {"cached_tokens": 20}
NAMES = [
    {"prompt_tokens": 32, "completion_tokens": 9, "prompt_tokens_details": CACHED, "input_tokens": 0},
    {"input_tokens": 32, "output_tokens": 9, "input_tokens_details": CACHED},
    {"input_tokens": 8, "output_tokens": 9, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 4},
]


def chunk(usage: object = None, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": usage}


def said(*chunks: object, cut: bool = False) -> Usage | None:
    reader = ChatReader("premium", str)
    reader.feed(b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in chunks))
    last = reader.end(cut=cut)[-1]
    assert isinstance(last, Failed | Finish)
    return last.usage


@pytest.mark.parametrize("told", NAMES)
@pytest.mark.parametrize("place", ["chunk", "choice", "x_groq"])
def test_a_count_is_read_wherever_it_stands(told: dict[str, Any], place: str) -> None:
    """Law: beside the choices, in the choice (Moonshot) or apart (Groq), in any names; the chunk's own counts first."""
    last = chunk(None, "stop") | {"x_groq": {}}
    {"chunk": last, "choice": last["choices"][0], "x_groq": last["x_groq"]}[place]["usage"] = told

    assert said(chunk(content="9"), last) == Usage(prompt_tokens=32, completion_tokens=9, cached_tokens=20)
    if place != "chunk":
        assert said(chunk(content="9"), last | {"usage": counted(1, 2)}) == Usage(prompt_tokens=1, completion_tokens=2)


@given(prompt=counts, completion=counts, beside=counts)
def test_what_the_total_has_and_no_count_has_was_written_too(prompt: int, completion: int, beside: int) -> None:
    """Law: tokens of reasoning that stand beside the completion (xAI, Gemini) are paid for, and settled."""
    told = counted(prompt, completion, total_tokens=prompt + completion + beside)
    usage = said(chunk(told, "stop", content="9"))
    expected = (prompt, completion + beside) if prompt + completion + beside else None

    assert (None if usage is None else (usage.prompt_tokens, usage.completion_tokens)) == expected


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        *((counted(32, 9, total_tokens=total), (32, 9)) for total in (None, 0, 40, -5, "many", float("nan"))),
        ({"total_tokens": 50, "completion_tokens": 9}, (0, 9)),  # without the prompt's count it can't be split
        (ZEROS, None),  # who says that nothing was read has not counted; the estimate stands
    ],
)
@pytest.mark.parametrize("cut", [True, False])
def test_a_total_takes_nothing_away(counts: Any, usage: tuple[int, int] | None, cut: bool) -> None:
    """Law: a total that is missing, too small or no number leaves the counts as they are; zeros are no count."""
    found = said(chunk(counts, content="word"), chunk(counts, None if cut else "stop"), cut=cut)

    assert (None if found is None else (found.prompt_tokens, found.completion_tokens)) == usage


@pytest.mark.parametrize(
    "content",
    [
        {"content": "word"},
        {"reasoning": "hm"},
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}]},
    ],
)
def test_a_count_from_before_the_words_is_not_theirs(content: dict[str, Any]) -> None:
    """Law: what is cut off behind its last count is estimated, whatever came behind the count; a count that comes with
    the last words or after them stands, cut or not."""
    early, late, whole = counted(20, 1), counted(20, 90), Usage(prompt_tokens=20, completion_tokens=90)

    assert said(chunk(early, role="assistant"), chunk(**content), cut=True) is None
    assert said(chunk(early, role="assistant"), chunk(ZEROS, **content), cut=True) is None
    assert said(chunk(early, **content), chunk(late, **content), cut=True) == whole
    assert said(chunk(early, role="assistant"), cut=True) == Usage(prompt_tokens=20, completion_tokens=1)
    assert said(chunk(early, **content), chunk(**content), chunk(late, "stop")) == whole
    assert said(chunk(**content), chunk(late, "stop"), chunk(content="")) == whole


def unreached(url: str, **options: Any) -> Failed:
    return failed(answers(HostedTier(name="premium", base_url=url, model="m", **options), ask())[0])


def test_who_was_not_reached_spent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a refused connection, a name that nobody has, no proxy: the prompt never left, so it isn't charged."""
    with Upstream() as gone:
        url = gone.base_url
    refused = unreached(url)
    assert (refused.fault, refused.usage) == (Fault.CRASHED, Usage())
    assert refused.message == "tier premium can't be reached: no connection to its server"
    assert unreached("http://nobody.invalid/v1").usage == Usage()
    assert unreached(url, headers={"x-name": "a\nb"}).usage == Usage()
    monkeypatch.setenv("http_proxy", url)
    assert unreached("http://nobody.invalid/v1").usage == Usage()


def test_a_connection_that_never_came_about_costs_nothing(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a connect timeout is charged nothing."""

    async def hanging(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(aiohttp.TCPConnector, "_create_connection", hanging)
    last = unreached(upstream.base_url, connect_s=0.05)
    assert (last.fault, last.usage) == (Fault.CONNECT_TIMEOUT, Usage())


def test_who_was_reached_may_have_read_the_prompt(upstream: Upstream) -> None:
    """Law: where a connection stood and then broke, or stayed silent, nothing is said of the cost: it is estimated."""
    assert failed(play(upstream, plays.cut())).usage is None
    assert failed(play(upstream, plays.cut(2))).usage is None
    assert failed(play(upstream, plays.hang(), idle_s=0.1, connect_s=0.1)).usage is None


REFUSALS: list[dict[str, Any]] = [
    {"refusal": "I can't.", "content": None},
    {"refusal": "I can't.", "content": ""},
    {"content": [{"type": "refusal", "refusal": "I can't."}]},
]


@pytest.mark.parametrize("message", REFUSALS)
@pytest.mark.parametrize("where", ["delta", "message"])
def test_a_refusal_is_no_text(where: str, message: dict[str, Any]) -> None:
    """Law: wherever an upstream puts its refusal, it is an event of its own, whose tokens count."""
    reader = ChunkReader(logprobs=True)
    choice = {"index": 0, where: message, "logprobs": {"content": None, "refusal": []}, "finish_reason": "stop"}

    assert reader.read({"choices": [choice]}) == [Refusal("I can't.")]
    assert reader.written > 0
    assert not reader.damaged


@given(st.lists(st.text(max_size=3), max_size=5))
def test_a_refusal_comes_in_pieces(pieces: list[str]) -> None:
    """Law: its pieces add up to its words; where there are none there is no refusal."""
    reader = ChunkReader()
    events = [event for piece in pieces for event in reader.read(chunk(refusal=piece, content=None))]

    assert all(isinstance(event, Refusal) for event in events)
    assert "".join(event.text for event in events if isinstance(event, Refusal)) == "".join(pieces)


def test_parts_that_think_are_reasoning() -> None:
    """Law: of a content in parts the text is the answer, and the thinking, a text or parts of text, is reasoning."""
    for thinking in ([{"type": "text", "text": "hm"}], "hm"):
        reader = ChatReader("premium", str)
        content = [{"type": "thinking", "thinking": thinking}, {"type": "text", "text": "Hi"}]
        frame = json.dumps(chunk(finish="stop", content=content)).encode()
        events = [*reader.feed(b"data: " + frame + b"\n\n"), *reader.end()]
        assert events[:2] == [Reasoning("hm"), Text("Hi")]


def read_all(*chunks: dict[str, Any]) -> tuple[str, list[str], bool]:
    reader, events = ChunkReader(), []
    for one in chunks:
        events += reader.read(one)
    events += reader.end()
    text = "".join(event.text for event in events if isinstance(event, Text))
    return text, [event.arguments for event in events if isinstance(event, CallDelta)], reader.damaged


CALL = {"id": "c", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize("said", [{"content": "Hello world"}, {"content": "Hello world", "tool_calls": [CALL]}])
def test_an_answer_that_is_told_again_at_its_end_is_told_once(said: dict[str, Any]) -> None:
    """Law: some servers put the complete message into the last chunk of a stream: it is no further piece. A
    longer one says that a piece is missing; white space around it is none."""
    pieces = [chunk(content="Hello "), chunk(content="world", tool_calls=said.get("tool_calls", []))]
    last = {"choices": [{"index": 0, "message": {"role": "assistant", **said}, "finish_reason": "stop"}]}
    expected = ("Hello world", ["{}"] * ("tool_calls" in said), False)

    assert read_all(*pieces, last) == expected
    assert read_all(last) == expected
    assert read_all(pieces[0], last)[2]
    told = [chunk(content=" Hello "), *pieces[1:]]
    assert read_all(*told, last) == (" Hello world", *expected[1:])


OTHER = {"index": 1, "delta": {"content": "Another", "tool_calls": [{"index": 0, **CALL}]}, "finish_reason": "length"}


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("at", [1, 2])
def test_one_choice_is_the_answer(at: int, ended: bool) -> None:
    """Law: some servers send several choices, though one was asked for. Words, calls and the end of another are never
    mixed into the answer, in chunks of their own or beside it; and without an end of its own it is none."""
    words = [chunk(content="Hello "), chunk(content="world"), *[chunk(finish="stop")] * ended]
    assert read_all(*words[:at], {"choices": [OTHER]}, *words[at:]) == ("Hello world", [], False)
    assert read_all(*({"choices": [OTHER, *w["choices"]]} for w in words)) == ("Hello world", [], False)
    reader = ChatReader("t", str)
    wire = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in [*words, {"choices": [OTHER]}])
    end = reader.feed(wire + b"data: [DONE]\n\n")[-1]

    assert isinstance(end, Finish if ended else Failed)


@pytest.mark.parametrize("finish", [None, "stop", "error"])
def test_an_error_within_a_choice_ends_the_answer(finish: str | None) -> None:
    """Law: an answer whose choice holds an error is broken off, whatever its finish reason says."""
    told = {"index": 0, "message": {"content": "Hel"}, "error": {"code": 502, "message": "lost"}}
    reader = ChatReader("t", str)
    reader.feed(json.dumps({"choices": [told | {"finish_reason": finish}]}).encode())

    assert "lost" in reader.end()[-1].message
