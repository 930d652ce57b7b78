"""Calls written into an answer: the third equal one convicts, and two are kept."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops import Kind, Scan, Stage, step, truncate
from reliability.loops.in_answer import BLOCK
from reliability.loops.written import CALL_CHARS, ROWS, _find_opener, _row_of
from reliability.tools.format_row import Format
from tests.support.written_calls import CALLS, prose, read

ALL = re.compile("|".join(f"(?P<r{at}>{'|'.join(row.compared)})" for at, row in enumerate(ROWS)), re.IGNORECASE)
SIGNS = [
    "<tool_call>", "<|tool_call|>", "[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS]", "⏺ look", "✿FUNCTION✿", "<function=f>",
    "functools[{", "call:f{", "to=functions.f", "commentary to=functions.f", "-> tool/function_call\n[{",
    "f<｜tool▁sep｜>", "<｜DSML｜ calls>", "function call<|role_sep|>", "f<|tool_call_argument_begin|>",
    "<x:tool_call>", "]<]minimax[>[<tool_call>", "<", "[", "]", "call", " f", "to=", "İ", "K", "\n", " ", "a", "<|",
    "function",
]  # fmt: skip


@given(st.lists(st.sampled_from(SIGNS), max_size=8).map("".join), st.integers(0, 12))
def test_what_is_found_is_what_one_pattern_finds(text: str, at: int) -> None:
    """Looking for signs first finds the opener that trying all of them at every character finds."""
    slow, fast = ALL.search(text, at), _find_opener(text, at)
    assert (fast is None) == (slow is None)
    if fast and slow:
        assert (fast.start(), fast.end(), f"r{_row_of(fast)}") == (slow.start(), slow.end(), slow.lastgroup)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.family)
def test_every_row_is_found(row: Format) -> None:
    """The examples of each row whose calls are compared hold an opener of it."""
    assert [found is None for example in row.examples if (found := ALL.search(example))] == [False] * len(row.examples)
    assert all(_find_opener(example, 0) is not None for example in row.examples)


@pytest.mark.parametrize("form", CALLS)
def test_the_third_equal_call_convicts(form: str) -> None:
    """Two equal calls in one answer pass; the third convicts, wherever it stands, in every format."""
    one, other = form.format(n=1), form.format(n=2)
    assert read(one * 2) is None
    assert read(one + other + one + other) is None
    for text in (one * 3, one + other + one + other + one, "Let me look.\n" + one * 5 + "Done."):
        loop = read(text)
        assert (loop.kind, loop.stage, loop.repetitions) == (Kind.ANSWER_CALLS, Stage.BREAK, 3)


@pytest.mark.parametrize("form", CALLS)
def test_two_copies_are_kept_and_so_is_all_else(form: str) -> None:
    """Truncation drops the third and further copies, and neither the text around them nor another call."""
    one, other = form.format(n=1), form.format(n=2)
    assert truncate("Look.\n" + one * 6).rstrip() == ("Look.\n" + one * 2).rstrip()
    mixed = truncate("Look.\n" + one * 4 + other + "Done.")
    assert mixed.count("n") == ("Look.\n" + one * 2 + other + "Done.").count("n")
    assert mixed.startswith("Look.\n" + one + one.rstrip())
    assert mixed.endswith(other + "Done.")


def test_a_line_with_a_mark_is_a_call_where_it_names_one() -> None:
    """`⏺` before a line that names nothing is a line of progress."""
    assert read("⏺ Working on it\n" * 3) is None
    assert read("⏺ Search: cats\n" * 3) is not None
    assert read("⏺ Bash(npm test)\n" * 3) is not None


def test_spacing_and_key_order_make_no_other_call() -> None:
    """Written calls are compared by what they mean."""
    same = [
        '<tool_call>{"name": "f", "arguments": {"a": 1, "b": 2}}</tool_call>',
        '<tool_call>\n{"arguments": {"b": 2, "a": 1}, "name": "f"}\n</tool_call>',
        '<tool_call>{"name":"f","arguments":{"b":2,"a":1.0}}</tool_call>',
    ]
    assert read(" ".join(same)) is not None


def test_keep_says_where_the_second_copy_ends() -> None:
    """The first `keep` characters hold exactly the first two copies."""
    call = CALLS[1].format(n=1)
    loop = read("Text before. " + call * 4)
    assert ("Text before. " + call * 4)[: loop.keep] == "Text before. " + call + call.rstrip("\n")


def test_a_copy_that_was_cut_off_is_dropped_too() -> None:
    """Where generation was aborted within the third copy, its beginning doesn't stay behind."""
    call = '[TOOL_REQUEST]{"name": "get"}[END_TOOL_REQUEST]\n'
    assert truncate(call * 2 + '[TOOL_REQUEST]{"na') == (call * 2).rstrip()


def test_a_call_that_never_ends_is_bounded() -> None:
    """What is held for an open call stays within its bound, and a call beyond it is not compared."""
    scan = Scan()
    for _ in range(60):
        scan, _ = step(scan, "<tool_call>" + prose(200, seed=len(scan.fill)))
        assert len(scan.seen.written.held) <= CALL_CHARS + BLOCK
    huge = "<tool_call>" + "".join(f"{i} " for i in range(CALL_CHARS // 4)) + "</tool_call>"
    assert read(huge * 3) is None
