"""Taking off the marks that a model puts around the rest of an answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.answer.wrapping import Wrapping, read_wrapping

FENCE = "```"


@pytest.mark.parametrize(
    ("said", "opened"),
    [('"rest', '"'), ("…rest", "…"), ("```text\nrest", "```text"), ("```\n“rest", "```\n“"), ("rest", "")],
)
def test_the_marks_at_the_beginning_are_read(said, opened):
    """Law: the text behind the marks, and the marks."""
    assert read_wrapping(said) == ("rest", opened)


@given(st.text(alphabet="ab \n`\"'.", max_size=40), st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_without_a_wrapping_all_of_it_leaves(text, sizes):
    """Law: nothing but one fence too many at the very end is held back, however the text is cut."""
    wrapping, out, at, number = Wrapping("begun", ""), "", 0, 0
    while at < len(text):
        size = sizes[number % len(sizes)]
        out, at, number = out + wrapping.feed(text[at : at + size]), at + size, number + 1
    out += wrapping.finish()

    assert text.startswith(out)
    assert text[len(out) :].strip() in ("", FENCE)
    assert out == text or text.count(FENCE) % 2 == 1


@pytest.mark.parametrize(
    ("begun", "said", "out", "torn"),
    [("begun", 'rest"', "rest", False), ('He said "a" and', ' rest"', " rest", True), ("begun", "rest", "rest", False)],
)
def test_a_closing_quotation_mark_that_may_be_the_text_s_own_tears(begun, said, out, torn):
    """Law: the last mark goes where only the wrapping has such marks."""
    wrapping = Wrapping(begun, '"')
    assert wrapping.feed(said) + wrapping.finish() == out
    assert wrapping.torn is torn


def test_a_fence_of_the_text_s_own_stays():
    """Law: fences come in pairs: the one that closes a block of the text is no wrapping."""
    wrapping = Wrapping(f"{FENCE}python\nx = 1", f"{FENCE}python")
    assert wrapping.feed(f"\ny = 2\n{FENCE}\n") + wrapping.finish() == f"\ny = 2\n{FENCE}\n"
