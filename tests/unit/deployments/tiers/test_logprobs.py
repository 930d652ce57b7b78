"""The probabilities of tokens: out of a model's output, and out of an upstream's chunks."""

import math
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.tiers.hosted.chat_chunks import ChunkReader
from deployments.tiers.logprobs import _NEVER, _TOKENS_MAX, LogprobReader, read_logprobs
from reliability.types import Logprobs, TokenLogprob
from tests.support import plays
from tests.support.plays import Head, Send, frame
from tests.support.tier_asking import ask, play
from tests.support.upstream import Upstream
from tests.unit.deployments.tiers.mlx.test_sequence import letter


class TestTeller:
    @given(st.lists(st.floats(-50, 0, width=32), min_size=1, max_size=28), st.integers(0, 20), st.data())
    def test_it_names_the_likeliest(self, numbers: list[float], top: int, data: Any) -> None:
        """Law: the taken token has its own number; the others are the most likely, the likeliest first, as many as
        were asked for and as there are."""
        token = data.draw(st.integers(0, len(numbers) - 1))
        told = LogprobReader(letter, top).read(token, mx.array(numbers))
        by_likelihood = sorted(numbers, reverse=True)

        assert told.raw == letter(token)
        assert told.logprob == pytest.approx(numbers[token])
        assert [p for _, p in told.top] == pytest.approx(by_likelihood[: min(top, len(numbers))])
        assert len({raw for raw, _ in told.top}) == len(told.top)

    @pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
    def test_what_a_grammar_forbids_can_be_written_as_json(self, dtype: Any) -> None:
        """Law: no infinity leaves, whatever the model calculates in."""
        told = LogprobReader(letter, 3).read(1, mx.array([-math.inf, -0.5, -math.inf], dtype=dtype))

        assert told.top == ((b"b", -0.5), (b"a", _NEVER), (b"c", _NEVER))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
ENTRY = st.dictionaries(st.sampled_from(["token", "logprob", "bytes", "top_logprobs"]), JSON)


@example({"content": [{"logprob": 10**400, "top_logprobs": [{"logprob": -(10**400)}]}]})
@given(JSON | st.fixed_dictionaries({"content": JSON | st.lists(ENTRY | JSON, max_size=4)}))
def test_nothing_that_an_upstream_sends_is_too_strange(value):
    """Whatever stands there is read, or left out; every number that comes out is finite."""
    for token in read_logprobs(value):
        assert math.isfinite(token.logprob)
        assert all(math.isfinite(p) for _, p in token.top)


def test_a_chunk_of_numbers_has_a_bound():
    """No upstream fills the memory with them."""
    assert len(read_logprobs({"content": [{"token": "a", "logprob": -1}] * (_TOKENS_MAX + 9)})) == _TOKENS_MAX


def scored(*tokens: str) -> Send:
    """A chunk with these tokens, as OpenAI sends it."""
    other = {"logprob": -0.25, "top_logprobs": [{"token": "other", "logprob": -2, "bytes": None}]}
    content = [other | {"token": token, "bytes": list(token.encode())} for token in tokens]
    choice = {"index": 0, "delta": {"content": "".join(tokens)}, "logprobs": {"content": content, "refusal": None}}
    return Send(frame({"id": "gen-1", "model": "m", "choices": [choice | {"finish_reason": None}]}))


CALL = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("delta", "told"),
    [
        ({"content": "Hi"}, True),
        ({"content": [{"type": "text", "text": "Hi"}]}, True),
        ({"content": ""}, True),  # half a character: its text comes with the other half
        ({"content": "Hi", "reasoning_content": None, "tool_calls": []}, True),
        ({"content": "Hi", "reasoning": "Hm."}, True),
        ({"content": None, "reasoning_content": "Hm."}, False),
        ({"content": "", "reasoning": "Hm."}, False),
        ({"content": "", "reasoning": "\ud83c"}, False),  # half of one: no event leaves yet
        ({"reasoning_details": [{"text": "Hm."}]}, False),
        ({"content": "", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, False),
        ({"content": [{"type": "thinking", "thinking": []}]}, False),
        ({"tool_calls": [CALL]}, False),
        ({"content": "", "function_call": {"arguments": "{"}}, False),
    ],
)
def test_an_upstream_s_thoughts_and_calls_are_not_told(delta: dict[str, Any], told: bool) -> None:
    """Law: the numbers of a chunk are its text's; where it has a thought or a call instead, they are left out."""
    numbers = {"content": [{"token": "x", "logprob": -1.0}]}
    events = ChunkReader(logprobs=True).read({"choices": [{"delta": delta, "logprobs": numbers}]})

    assert [event for event in events if isinstance(event, Logprobs)] == [Logprobs((TokenLogprob(b"x", -1.0),))] * told


class TestHosted:
    PLAY = (Head(headers=plays.SSE), scored("Hel", "lo"), scored(" you"), *plays.tail())

    def test_an_upstream_s_numbers_pass(self, upstream: Upstream) -> None:
        """Law: what was asked of the upstream, and what it says, is what the client asked for and is told."""
        events = play(upstream, self.PLAY, ask(top_logprobs=1))
        told = [token for event in events if isinstance(event, Logprobs) for token in event.tokens]

        assert told == [TokenLogprob(raw, -0.25, ((b"other", -2.0),)) for raw in (b"Hel", b"lo", b" you")]
        assert (upstream.log[-1].body["logprobs"], upstream.log[-1].body["top_logprobs"]) == (True, 1)

    def test_unasked_they_stay_there(self, upstream: Upstream) -> None:
        """Law: an upstream that sends numbers that nobody wanted costs nothing further in."""
        events = play(upstream, self.PLAY)

        assert not [event for event in events if isinstance(event, Logprobs)]
        assert "logprobs" not in upstream.log[-1].body
