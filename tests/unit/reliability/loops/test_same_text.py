"""The same text, or texts in turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reliability.loops.findings import Call, Turn
from reliability.loops.same_text import PERIOD_MAX, TEXTS_MAX, count_same_texts

A, B, C = (Turn(text=text) for text in ("I can't open it, sorry.", "Let me look once more.", "Shall I go on then?"))


def test_texts_in_turn_are_counted_by_rounds() -> None:
    """A round that has begun counts, as a repetition of calls does."""
    assert count_same_texts([A, A, A], 0.95, 1)[0] == 3
    assert [count_same_texts(([A, B] * 9)[:n], 0.95, 2)[0] for n in (1, 2, 3, 4, 5, 6)] == [0, 1, 2, 2, 3, 3]
    assert count_same_texts([A, B, C, A, B, C], 0.95, 3)[0] == 2
    assert count_same_texts([A, A, A, A], 0.95, 2)[0] == 0


def test_a_call_ends_the_row_and_a_written_one_does_not() -> None:
    """A native call is work between two texts; one that stands in the text is the text."""
    assert count_same_texts([A, Turn((Call("f"),), (None,)), A], 0.95, 1)[0] == 1
    written = Turn((Call("f"),), (None,), "```\nf\n```", written=True)
    assert count_same_texts([written, written], 0.95, 1)[0] == 2


@given(st.lists(st.sampled_from([A, B, C, Turn()]), max_size=90), st.integers(1, PERIOD_MAX))
def test_the_count_is_bounded(turns: list[Turn], period: int) -> None:
    """However long the talk is, so many texts are looked at and no more."""
    assert 0 <= count_same_texts(turns, 0.95, period)[0] <= TEXTS_MAX
