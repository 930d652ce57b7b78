"""Bare texts and the values that they stand for."""

from __future__ import annotations

import pytest

from reliability.tools.extract.literal import Unreadable
from reliability.tools.extract.typing_text import Arguments, read_framed
from tests.support.extracting import BOX


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        ("\na\n", "a"),
        ("\r\na\r\n", "a"),
        ("a\n", "a\n"),
        ("def f():\n    pass\n", "def f():\n    pass\n"),
        ("\na", "a"),
        ("\n", ""),
        ("\n\na", "\na"),
        ("\na\n    ", "a"),
        ("\n  a\n    ", "  a"),
        ("\n    ", ""),
        ("a\n    ", "a\n    "),
        ("<![CDATA[a\n]]>", "a\n"),
    ],
)
def test_only_a_framed_text_loses_its_line_breaks(text, stripped):
    """A line break behind the opening tag is layout, and then the closing tag's own line is; a value that begins on the
    line of its opening tag keeps its line breaks."""
    assert read_framed(text, 0, len(text), on_lines=True)[0] == stripped


def test_what_the_model_says_of_a_value_counts():
    """A value that is said to be no string is a literal, also where a string is allowed."""
    found = Arguments(BOX.find("search"))
    found.add("query", "5", 0, is_string=True)
    found.add("more", "[1]", 0, is_string=False)
    assert found.found == {"query": "5", "more": [1]}
    with pytest.raises(Unreadable):
        found.add("query", "6", 0)
