"""The delimiters of the table of call formats, as expressions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliability.tools.delimiters import beginnings
from reliability.tools.formats import CALL_FORMATS

ROWS_OF_SIGNS = sorted({start.head for row in CALL_FORMATS for start in row.starts if start.head})


@pytest.mark.parametrize("pattern", ROWS_OF_SIGNS)
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_beginnings_are_those_of_the_pattern(pattern, data):
    """Each beginning of what a pattern matches is a beginning by the derived expression."""
    text = data.draw(st.from_regex(pattern, fullmatch=True))
    begun = re.compile(beginnings(pattern))
    for end in range(len(text)):
        assert begun.match(text[:end])
