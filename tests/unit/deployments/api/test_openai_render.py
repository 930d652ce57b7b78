"""An answer whole and streamed: text, refusals, the probabilities of tokens, usage."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.openai_chat import _ChatWanted
from deployments.api.openai_render import COMMENTS_PER_EVENT, KEEP_ALIVE, _AnswerCollector, _ChunkWriter
from reliability.types import CallDelta, Finish, FinishReason, Logprobs, Reasoning, Refusal, Text, TokenLogprob
from tests.support.response_wire import LOGPROBS

EVENTS = st.one_of(
    st.text(min_size=1, max_size=5).map(Text),
    st.text(min_size=1, max_size=5).map(Reasoning),
    st.text(min_size=1, max_size=5).map(Refusal),
    st.lists(LOGPROBS, min_size=1, max_size=3).map(lambda tokens: Logprobs(tuple(tokens))),
    st.just(CallDelta(index=0, id="call_1", name="f", arguments="{}")),
)
STOP = Finish(reason=FinishReason.STOP)


def collector() -> _AnswerCollector:
    return _AnswerCollector(wanted=_ChatWanted())


def writer_of(**more: bool) -> _ChunkWriter:
    return _ChunkWriter(wanted=_ChatWanted(**more))


def chunks_of(sent: bytes):
    return [json.loads(line[6:]) for line in sent.decode().split("\n\n") if line.startswith("data: {")]


@given(st.lists(st.lists(EVENTS, max_size=5), max_size=5))
def test_a_stream_tells_what_the_whole_answer_tells(batches):
    """Text, refusal and probabilities are the same, in the same order; every chunk that has probabilities has a delta
    of text; without any the field is null."""
    answer = collector()
    writer = writer_of()
    chunks = []
    for batch in batches:
        answer.take(batch)
        chunks += chunks_of(writer.chunks("m", batch))
    whole = json.loads(answer.body("m", STOP))["choices"][0]
    choices = [chunk["choices"][0] for chunk in chunks]
    told = [token for choice in choices if choice["logprobs"] for token in choice["logprobs"]["content"]]

    assert told == (whole["logprobs"]["content"] if whole["logprobs"] else [])
    assert all("content" in choice["delta"] for choice in choices if choice["logprobs"])
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == (whole["message"]["content"] or "")
    refusals = [choice["delta"].get("refusal") for choice in choices]
    assert ("".join(filter(None, refusals)) or None) == whole["message"]["refusal"]
    assert bool(told) == any(isinstance(event, Logprobs) for batch in batches for event in batch)


def test_a_token_is_told_as_openai_does():
    """Half a character is shown as such in `token`, and exactly in `bytes`."""
    answer = collector()
    answer.take([Text("é"), Logprobs((TokenLogprob(b"\xc3", -0.5, ((b"e", -1.0),)),))])

    assert json.loads(answer.body("m", STOP))["choices"][0]["logprobs"] == {
        "content": [
            {
                "token": "\ufffd",
                "logprob": -0.5,
                "bytes": [195],
                "top_logprobs": [{"token": "e", "logprob": -1.0, "bytes": [101]}],
            }
        ],
        "refusal": None,
    }


def test_a_long_silence_has_chunks_without_a_word_in_it():
    """Law: clients that count events hear one in every few silences; the role is named once, no text comes of it."""
    writer = writer_of()
    frames = [writer.silence("fast") for _ in range(2 * COMMENTS_PER_EVENT)]
    chunks = chunks_of(b"".join([*frames, writer.chunks("fast", [Text("hi")]), writer.last("fast", STOP, {})]))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]

    assert [frame == KEEP_ALIVE for frame in frames].count(False) == 2
    assert deltas == [{"role": "assistant", "content": ""}, {"content": ""}, {"content": "hi"}, {}]


def test_a_refusal_has_no_content():
    """Law: beside a refusal the content is null, as from OpenAI: a client that parses the content never meets it."""
    answer = collector()
    answer.take([Refusal("No.")])
    writer = writer_of()
    (chunk,) = chunks_of(writer.chunks("m", [Refusal("N"), Refusal("o.")]))

    assert json.loads(answer.body("m", STOP))["choices"][0]["message"]["content"] is None
    assert chunk["choices"][0]["delta"] == {"role": "assistant", "content": None, "refusal": "No."}


@pytest.mark.parametrize("event", [CallDelta(index=0, id="c1", name="look", arguments="{}"), Reasoning("So")])
def test_a_first_chunk_without_text_has_no_content(event):
    """Law: beside a call or a thought the content is null, as from OpenAI and DeepSeek: a client that looks for text
    first (Griptape) passes over what stands next to an empty one."""
    (chunk,) = chunks_of(writer_of().chunks("m", [event]))
    delta = chunk["choices"][0]["delta"]

    assert (len(delta), delta["role"], delta["content"]) == (3, "assistant", None)


def test_each_chunk_says_whether_it_has_the_usage():
    """Law: where usage was asked for, all chunks but the last have null; where it wasn't, none has the key."""
    for asked in (True, False):
        writer = writer_of(include_usage=asked)
        chunks = chunks_of(writer.chunks("m", [Text("a")]) + writer.last("m", STOP, {}))

        assert ["usage" in chunk for chunk in chunks] == [asked] * len(chunks)
        assert [chunk["usage"] is None for chunk in chunks if asked] == ([True, True, False] if asked else [])
