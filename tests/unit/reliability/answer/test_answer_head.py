"""The marks of a chat template in the place of an answer, and texts that are looked for at one place."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.answer.answer_head import PARTIAL, Head, Starts, drop_marks, may_be_marks
from reliability.types import CallDelta, Text

CALL = CallDelta(index=0, id="a", name="f", arguments="{}")


@pytest.mark.parametrize("text", ["<|im_start|>", "<|im_end|>", " <|endoftext|>\n", "<|im_start|><|im_end|>"])
def test_marks_alone_are_no_answer(text):
    """Law: an answer of nothing but marks is the empty one that it is, in any pieces; a call beside them is all."""
    assert may_be_marks(text)
    for pieces in ([text], [*text]):
        assert list(drop_marks([*map(Text, pieces), CALL])) == [CALL]


@pytest.mark.parametrize(
    "text",
    ["Use <|im_start|> first", "<b>", "<|", "| a |", "\n  x", "<|tool_call|>", "assistant", "<|im_end|> is it", " \n"],
)
def test_any_other_head_stays(text):
    """Law: what an answer says of marks, what only looks like one, and white space alone is the answer."""
    for events in ([Text(text)], [*map(Text, text), CALL], [CALL]):
        assert drop_marks(events) == events


@given(st.sampled_from(["<|im_start|>", "<|im_end|>", "<｜end▁of▁sentence｜>", "  \n"]), st.data())
def test_it_waits_until_it_is_known(mark, data):
    """Law: whatever may still become nothing hasn't left; behind the first word nothing waits."""
    cut = data.draw(st.integers(0, len(mark)))
    assert may_be_marks(mark[:cut])
    assert not may_be_marks(f"{mark} The file")


@given(st.lists(st.sampled_from([" ", "\n", "<|im_end|>", "<|im_start|>", "a", "<thi", "nk>"]), max_size=12))
def test_the_head_is_the_same_in_any_pieces(pieces):
    """Law: what waits and what leaves doesn't depend on the cuts, but for how much has come by then."""
    text, out, head = "".join(pieces), "", Head()
    for piece in pieces:
        taken = head.take(piece) if not out else piece
        out += taken or ""
    assert bool(out) == any(not may_be_marks(text[:at]) for at in _ends(pieces))
    assert (out or head.text()) == text


@pytest.mark.parametrize("piece", [" ", "\t", "\r\n", "\u2028\xa0", "\t<|im_end|>", "<|im_start|>"])
def test_a_long_head_is_not_looked_at_again(piece):
    """Law: however much waits, and of whatever white space and marks, the next piece is read with little before it."""
    head, text = Head(), piece * 400
    assert [head.take(part) for part in re.findall(".{7}|.", text, re.DOTALL)][-1] is None
    assert len(head._last) < 100
    assert head.take("a") == f"{text}a"


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
