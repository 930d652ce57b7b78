"""Where a call begins in a text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops.call_openers import ROWS, find_opener, row_of
from reliability.tools.format_row import Format

ALL = re.compile("|".join(f"(?P<r{at}>{'|'.join(row.compared)})" for at, row in enumerate(ROWS)), re.IGNORECASE)
SIGNS = [
    *(
        "<tool_call>",
        "<|tool_call|>",
        "[TOOL_CALLS]",
        "[TOOL_CALLS]f[ARGS]",
        "⏺ look",
        "✿FUNCTION✿",
        "<function=f>",
        "functools[{",
    ),
    *(
        "call:f{",
        "to=functions.f",
        "commentary to=functions.f",
        "-> tool/function_call\n[{",
        "f<｜tool▁sep｜>",
        "<｜DSML｜ calls>",
    ),
    *("function call<|role_sep|>", "f<|tool_call_argument_begin|>", "<x:tool_call>", "]<]minimax[>[<tool_call>"),
    *("<", "[", "]", "call", " f", "to=", "İ", "K", "\n", " ", "a", "<|", "function"),
]


@given(st.lists(st.sampled_from(SIGNS), max_size=8).map("".join), st.integers(0, 12))
def test_what_is_found_is_what_one_pattern_finds(text: str, at: int) -> None:
    """Looking for signs first finds the opener that trying all of them at every character finds."""
    slow, fast = ALL.search(text, at), find_opener(text, at)
    assert (fast is None) == (slow is None)
    if fast and slow:
        assert (fast.start(), fast.end(), f"r{row_of(fast)}") == (slow.start(), slow.end(), slow.lastgroup)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.family)
def test_every_row_is_found(row: Format) -> None:
    """The examples of each row whose calls are compared hold an opener of it."""
    assert [found is None for example in row.examples if (found := ALL.search(example))] == [False] * len(row.examples)
    assert all(find_opener(example, 0) is not None for example in row.examples)
