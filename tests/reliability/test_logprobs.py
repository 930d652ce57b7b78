"""Tokens leave with their text."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from reliability.logprobs import WaitingLogprobs
from reliability.types import Logprobs, Text, TokenLogprob


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The pieces between these places."""
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(ends)]


@given(st.text(min_size=1, max_size=40), st.lists(st.integers(0, 200)), st.lists(st.integers(0, 200)), st.data())
def test_each_token_leaves_once_in_order_and_with_the_text_in_which_it_begins(text, token_cuts, text_cuts, data):
    """However text and tokens are cut, a token is never told before its first byte has left, never later than that byte
    where the token was there already, and never twice."""
    tokens = [TokenLogprob(raw, -float(i)) for i, raw in enumerate(cut(text.encode(), token_cuts))]
    pieces = [piece.decode() for piece in cut_chars(text, text_cuts)]
    waiting, told, left, given_in = WaitingLogprobs(), [], 0, 0
    for piece in pieces:
        ready = data.draw(st.integers(given_in, len(tokens)))
        waiting.add(tokens[given_in:ready])
        given_in = ready
        out = waiting.leave_with([Text(piece)])
        left += len(piece.encode())
        assert len(out) <= 1
        told += [token for event in out if isinstance(event, Logprobs) for token in event.tokens]
        begun = [i for i in range(given_in) if sum(len(t.raw) for t in tokens[:i]) < left]
        assert told == [tokens[i] for i in begun]
    waiting.add(tokens[given_in:])
    rest = waiting.rest()
    assert [*told, *(token for event in rest if isinstance(event, Logprobs) for token in event.tokens)] == tokens
    assert waiting.rest() == []


def cut_chars(text: str, places: list[int]) -> list[bytes]:
    """The same, between characters."""
    ends = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[a:b].encode() for a, b in itertools.pairwise(ends)]


def test_white_space_that_was_taken_off_the_text_is_not_told():
    """Behind a thinking, models write white space that is no part of the answer."""
    waiting = WaitingLogprobs()
    waiting.add([TokenLogprob(b"\n\n", -1.0), TokenLogprob(b"Hi", -2.0)])

    assert waiting.leave_with([Text("H")]) == [Logprobs((TokenLogprob(b"Hi", -2.0),))]
