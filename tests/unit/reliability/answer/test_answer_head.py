"""The marks of a chat template at the head of an answer, or in its place."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.answer.answer_head import PARTIAL, Head, Starts, _may_be_turn_start, drop_turn_start, strip_turn_start
from reliability.types import CallDelta, Text

OPENINGS = ["<|im_start|>", "<|im_start|>assistant\n", "\n<|im_start|>assistant", "<|im_start|><|im_start|>assistant\n"]
words = st.text(min_size=1, max_size=40).filter(lambda text: not text[0].isspace() and text[0] != "<")


@given(st.sampled_from(OPENINGS), words)
def test_an_opening_is_no_part_of_the_answer(opening, text):
    """Law: the answer begins behind it; a word that only begins like the role is the answer's."""
    if opening.endswith("assistant") and (text[0].isalnum() or text[0] == "_"):
        text = f" {text}"
    if opening.endswith("<|im_start|>") and text.startswith("assistant"):
        return
    assert strip_turn_start(opening + text) == text.lstrip()


@pytest.mark.parametrize("text", [*OPENINGS[:1], "<|im_end|>", " <|endoftext|>\n", "<|im_start|><|im_end|>"])
def test_marks_alone_are_no_answer(text):
    """Law: an answer of nothing but marks is the empty one that it is."""
    assert strip_turn_start(text) == ""
    assert _may_be_turn_start(text)


@pytest.mark.parametrize(
    "text", ["Use <|im_start|> first", "<b>", "<|", "| a |", "\n  x", "<|tool_call|>", "assistant"]
)
def test_any_other_head_stays(text):
    """Law: what an answer says of marks, and what only looks like one, is the answer."""
    assert strip_turn_start(text) == text


@given(st.sampled_from([*OPENINGS, "<|im_end|>", "  \n"]), st.data())
def test_it_waits_until_it_is_known(opening, data):
    """Law: whatever may still become nothing, or an opening, hasn't left; behind the first word nothing waits."""
    cut = data.draw(st.integers(0, len(opening)))
    assert _may_be_turn_start(opening[:cut])
    assert not _may_be_turn_start(f"{opening} The file")


def test_white_space_alone_stays_what_it_is():
    """Law: only marks are taken away: what white space means is decided elsewhere."""
    assert strip_turn_start(" \n") == " \n"


def test_events_keep_their_order():
    """Law: a call behind an opening is the whole answer; other events aren't touched."""
    call = CallDelta(index=0, id="a", name="f", arguments="{}")
    assert list(drop_turn_start([Text("<|im_start|>"), call])) == [call]
    assert list(drop_turn_start([call])) == [call]
    assert list(drop_turn_start([Text("<|im_start|>assistant\nHi"), call])) == [Text("Hi"), call]


@given(
    st.lists(st.sampled_from([" ", "\n", "<|im_end|>", "<|im_start|>", "assistant", "a", "<thi", "nk>"]), max_size=12)
)
def test_the_head_is_the_same_in_any_pieces(pieces):
    """Law: what waits and what leaves doesn't depend on the cuts, but for how much has come by then."""
    text, out, head = "".join(pieces), "", Head()
    for piece in pieces:
        taken = head.take(piece) if not out else piece
        out += taken or ""
    assert bool(out) == any(not _may_be_turn_start(text[:at]) for at in _ends(pieces))
    assert (out or head.text()) == text


def _ends(pieces):
    return [len("".join(pieces[:at])) for at in range(1, len(pieces) + 1)]


MARKS = ("<tool>", "<tools>", "<|x|>")
STARTS = Starts(map(re.escape, MARKS))


@given(st.sampled_from(MARKS), st.data())
def test_every_beginning_is_partial_and_the_whole_is_found(mark, data):
    """Law: a cut mark may still become one; a complete one is found whatever stands behind it."""
    cut = data.draw(st.integers(0, len(mark) - 1))
    assert STARTS.find_at(mark[:cut], 0) == PARTIAL
    assert isinstance(STARTS.find_at(mark + "!", 0), re.Match)
    assert STARTS.find_at(mark[:cut] + "!", 0) is None
