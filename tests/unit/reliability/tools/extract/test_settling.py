"""How a walk settles what it finds, and where in its text a place stands."""

from __future__ import annotations

import pytest

from reliability.tools.extract.settling import MALFORMED_MAX, Findings
from tests.support.extracting import BOX, calls


def test_marks_that_hold_nothing_leave_the_prose_around_them():
    """Dropped marks are neither prose nor a call, and something is found all the same."""
    found = Findings(BOX, 0)
    found.text = "One <x></x> two"
    found.drop(4, 11)
    found.prose.add(found.text[found.kept :], found.kept)

    assert (found.calls, found.malformed, found.found) == ([], [], True)
    assert found.prose.text() == "One\ntwo"


def test_what_cant_be_read_is_bounded():
    """Behind the last that is reported everything is one more of them."""
    found = Findings(BOX, 0)
    found.text = "x" * 2 * MALFORMED_MAX
    for at in range(MALFORMED_MAX):
        found.report_malformed(at, at + 1, "bad", "test")

    assert len(found.malformed) == MALFORMED_MAX
    assert found.at == len(found.text)


@pytest.mark.parametrize(
    "before",
    ["Don't do this:", "Never write:", "Avoid this:", "For example:", "def main():", "    if found:", "async def f():"],
)
def test_a_call_that_is_shown_is_prose(before):
    """Where the line before says that it is an example, or heads a block of code, the last line is no call."""
    assert calls(f"{before}\n    search(query='x')") == []
    assert calls("I look it up:\nsearch(query='x')") == [("search", {"query": "x"})]
