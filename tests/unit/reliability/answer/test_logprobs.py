"""Tokens leave with their text."""

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from reliability.answer.logprobs import WaitingLogprobs
from reliability.types import Logprobs, Reasoning, Text, TokenLogprob


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


def told_of(raws: list[bytes], pieces: list[str], off: int) -> list[int]:
    """Which of these tokens have left once the text has, whose first `off` bytes were taken off; each piece leaves when
    its tokens are there."""
    tokens = [TokenLogprob(raw, -float(i)) for i, raw in enumerate(raws)]
    begins = list(itertools.accumulate(map(len, raws), initial=0))
    waiting, told, left, given_in = WaitingLogprobs(), [], off, 0
    for piece in pieces:
        left += len(piece.encode())
        ready = sum(begin < left for begin in begins[:-1])
        waiting.add(tokens[given_in:ready])
        given_in = ready
        for event in waiting.leave_with([Text(piece)]):
            assert isinstance(event, Logprobs)
            told += [int(-token.logprob) for token in event.tokens]
        assert all(begins[i] < left for i in told), "never before its first byte"
    return told


@example(head=" ", body="Hi!", off=1, token_cuts=[3], text_cuts=[])
@example(head="  ", body="Hi!", off=1, token_cuts=[4], text_cuts=[])
@example(head="  ", body="Hi!", off=1, token_cuts=[2, 4], text_cuts=[1])
@example(head="  ", body="é a", off=1, token_cuts=[4, 5], text_cuts=[1])
@given(
    st.text(" \n", max_size=5),
    st.text("aé ", max_size=10).map("é".__add__),
    st.integers(0, 5),
    st.lists(st.integers(0, 40)),
    st.lists(st.integers(0, 40)),
)
def test_white_space_that_was_taken_off_keeps_no_token_back(head, body, off, token_cuts, text_cuts):
    """A tokenizer takes one space off the first token, a thinking's end all white space behind it, and some white space
    is the text's own. However much is gone, and however tokens and text are cut, every token of what is left of the
    text has left with it."""
    off = min(off, len(head))
    raws = cut((head + body).encode(), token_cuts)
    told = told_of(raws, [piece.decode() for piece in cut_chars((head + body)[off:], text_cuts)], off)
    ends = list(itertools.accumulate(map(len, raws)))

    assert told == sorted(set(told))
    assert {i for i, end in enumerate(ends) if end > len(head)} <= set(told)
    if off == 0:
        assert told == list(range(len(raws)))


def test_a_new_text_may_have_lost_white_space_of_its_own():
    """Behind a call the count begins anew."""
    waiting = WaitingLogprobs()
    waiting.add([TokenLogprob(b" a", -1.0)])
    waiting.leave_with([Text("a")])
    waiting.forget()
    waiting.add([TokenLogprob(b" b", -2.0), TokenLogprob(b"!", -3.0)])
    assert waiting.leave_with([Text("b!")]) == [Logprobs((TokenLogprob(b" b", -2.0), TokenLogprob(b"!", -3.0)))]


def test_white_space_alone_doesn_t_say_what_was_taken_off():
    """The rest of it may still come: nothing is dropped before something else has come of the text."""
    tokens = [TokenLogprob(raw, -1.0) for raw in (b"\n", b"\n", b"Hi")]
    waiting = WaitingLogprobs()
    waiting.add(tokens)
    assert waiting.leave_with([Text("\n")]) == [Logprobs((tokens[0],))]
    assert waiting.leave_with([Text("\nHi")]) == [Logprobs((tokens[1], tokens[2]))]


def test_a_token_without_bytes_leaves_too():
    """An upstream may tell none."""
    tokens = TokenLogprob(b"", -1.0), TokenLogprob(b"Hi", -2.0)
    waiting = WaitingLogprobs()
    waiting.add(tokens)
    assert waiting.leave_with([Text("Hi")]) == [Logprobs(tokens)]


def test_the_tokens_of_reasoning_that_was_taken_out_are_left_out():
    """Law: the numbers that leave are those of the text that leaves, whether they come token by token or at once."""
    written = ["<think>", "hm", ".", "</think>", "\n", "It", " is", " 5"]
    tokens = [TokenLogprob(one.encode(), -0.1) for one in written]

    waiting = WaitingLogprobs()
    parts = [[], [Reasoning("hm")], [Reasoning(".")], [], [], [Text("It")], [Text(" is")], [Text(" 5")]]
    left = []
    for token, text, part in zip(tokens, written, parts, strict=True):
        waiting.leave_out(Text(text), part)
        waiting.add([token])
        left += waiting.leave_with(part)
    assert [token for event in left for token in event.tokens] == tokens[5:]

    at_once = WaitingLogprobs()
    at_once.leave_out(Text("".join(written)), [Reasoning("hm."), Text("It is 5")])
    at_once.add(tokens)
    assert at_once.leave_with([Text("It is 5")]) == [Logprobs(tuple(tokens[5:]))]

    only = WaitingLogprobs()
    only.leave_out(Text("<think>hm"), [Reasoning("hm")])
    only.add(tokens[:2])
    assert only.rest() == []
