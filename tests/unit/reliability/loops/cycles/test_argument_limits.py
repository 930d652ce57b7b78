"""How much repetition in arguments is a runaway."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops.cycles.argument_limits import DATA_SPAN, begins_call, is_runaway_argument, update_place
from reliability.loops.cycles.long_cycles import LongTail
from reliability.tools.format_row import Reader
from reliability.tools.formats import CALL_FORMATS


def streak(unit: str, copies: int) -> LongTail:
    """A text that ends in so many copies."""
    return LongTail(text=unit * 2, length=100 + len(unit) * copies, period=len(unit), start=100)


@pytest.mark.parametrize("unit", ["a", "0,", "na", "null, ", '<td class="cell"></td>\\n', "False, True, ", "AAAA\\n"])
def test_data_may_go_on_for_long(unit):
    """What says nothing is a matrix, a picture, a board: only far beyond that it is a runaway."""
    assert not is_runaway_argument(streak(unit, (DATA_SPAN - 1) // len(unit)))
    assert is_runaway_argument(streak(unit, DATA_SPAN // len(unit) + 1))


@pytest.mark.parametrize("shift", range(0, 40, 7))
def test_a_line_that_says_something_is_one_sooner(shift):
    """Forty-two times the same line of code is a runaway, wherever in it one begins to count."""
    line = "        self.assertEqual(result, expected)\\n"
    line = line[shift:] + line[:shift]
    assert is_runaway_argument(streak(line, 42))
    assert not is_runaway_argument(streak(line, 20))


def test_a_tag_says_nothing_wherever_it_is_cut():
    """The words of a tag are none, also where the unit begins in the middle of it."""
    cell = '<div class="cell empty" role="button"></div>\\n'
    assert not any(is_runaway_argument(streak(cell[at:] + cell[:at], 400)) for at in range(len(cell)))


def test_a_long_unit_needs_fewer_copies():
    """Twelve copies of a function are a runaway; eleven may be eleven."""
    unit = "def check(value):\\n    return value is not None and value.strip()\\n" * 10
    assert is_runaway_argument(streak(unit, 12))
    assert not is_runaway_argument(streak(unit, 11))


def test_without_a_streak_there_is_none():
    """A text that repeats nothing is no runaway."""
    assert not is_runaway_argument(LongTail(text="abc", length=90_000))


TEXTS = [
    "Well. ",
    "<tool_call>",
    "</tool_call>",
    '{"name": "f"}',
    "<function=f>\n<parameter=a>",
    "</function>",
    "[TOOL_REQUEST]",
    "[END_TOOL_REQUEST]",
    "a < b [1] ",
]


def place(text: str, size: int) -> bool:
    """Read the text in pieces of this size."""
    inside = False
    for at in range(0, len(text), size):
        inside = update_place(inside, text[: at + size], len(text[at : at + size]))
    return inside


@given(st.lists(st.sampled_from(TEXTS), max_size=8).map("".join), st.integers(1, 40))
def test_the_cuts_say_nothing(text, size):
    """A delimiter that comes in two pieces is one; so the place is the same in whatever pieces the text came."""
    assert place(text, size) is place(text, max(1, len(text)))


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ('<tool_call>{"name": "f", "arguments": {"a": "', True),
        ('<tool_call>{"name": "f"}</tool_call> Done. ', False),
        ("<function=write>\n<parameter=content>\n0 0 0\n", True),
        ("<function=write>\n<parameter=content>\n0\n</parameter>\n</function>\n", False),
        ("<|channel|>commentary to=functions.f<|message|>{", True),
        ("<|channel|>analysis<|message|>I think. ", False),
        ("Is a < b, and c[0] > d? ", False),
    ],
)
def test_a_call_begins_and_ends(text, inside):
    """It begins behind an opener and ends behind a closer."""
    assert place(text, 16) is inside


@pytest.mark.parametrize("head", ['{"name": "f", "arg', '[{"name"', '  "content": "0, 0', "Action Input: {", '> {"a"'])
def test_a_line_of_json_may_be_a_call(head):
    """So much may be told by its beginning."""
    assert begins_call(head)


@pytest.mark.parametrize("head", ["Well, {that} is it", "- a list", "", "Action: think about it"])
def test_other_lines_are_none(head):
    """All else is text."""
    assert not begins_call(head)


@pytest.mark.parametrize("row", [row for row in CALL_FORMATS if row.reader is Reader.ENVELOPE and row.closes])
def test_every_envelope_of_the_table_is_known(row):
    """Somewhere in its examples the text is inside of a call."""
    places = [update_place(False, example[:at], at) for example in row.examples for at in range(1, len(example))]
    assert any(places)
