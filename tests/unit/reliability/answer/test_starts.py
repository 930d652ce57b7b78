"""One of several texts at a place, or the beginning of one at the end."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from reliability.answer.starts import PARTIAL, Starts

MARKS = ("<tool>", "<tools>", "<|x|>")
STARTS = Starts(map(re.escape, MARKS))


@given(st.sampled_from(MARKS), st.data())
def test_every_beginning_is_partial_and_the_whole_is_found(mark, data):
    """Law: a cut mark may still become one; a complete one is found whatever stands behind it."""
    cut = data.draw(st.integers(0, len(mark) - 1))

    assert STARTS.find_at(mark[:cut], 0) == PARTIAL
    assert isinstance(STARTS.find_at(mark + "!", 0), re.Match)
    assert STARTS.find_at(mark[:cut] + "!", 0) is None
