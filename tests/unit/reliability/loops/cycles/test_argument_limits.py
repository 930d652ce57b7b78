"""How much repetition in arguments is a runaway."""

from __future__ import annotations

import pytest

from reliability.loops.cycles.argument_limits import DATA_SPAN, is_runaway_argument
from reliability.loops.cycles.long_cycles import LongTail


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
