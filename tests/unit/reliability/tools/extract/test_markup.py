"""Calls written as tags: the types and the edges of bare values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.extracting import calls


def test_bare_values_take_the_type_that_the_schema_gives_them():
    """Text is text where a string is allowed; elsewhere it is a literal, or stays for the check to refuse."""
    text = (
        "<function=save>"
        + "".join(
            f"<parameter={key}>{value}</parameter>"
            for key, value in {
                "path": "007",
                "data": "{'a': True}",
                "tags": '[1, "x"]',
                "on": "yes",
                "mixed": "5",
                "size": "null",
                "new": "1",
            }.items()
        )
        + "</function>"
    )

    assert calls(text) == [
        (
            "save",
            {
                "path": "007",
                "data": {"a": True},
                "tags": [1, "x"],
                "on": "yes",
                "mixed": "5",
                "size": None,
                "new": "1",
            },
        )
    ]
    assert calls("<function=save><parameter=size>1.5 m</parameter></function>") == [("save", {"size": "1.5 m"})]
    assert calls("<function=nope><parameter=a>1</parameter></function>") == [("nope", {"a": "1"})]


def test_a_parameter_keeps_its_own_line_breaks():
    """One line break at each end is framing; every other one, and one at one end only, belongs to the value."""
    assert calls("<function=save>\n<parameter=path>\n\na\n\n</parameter>\n</function>") == [("save", {"path": "\na\n"})]


def test_line_ends_of_windows_frame_a_parameter():
    """The line break that stands before and behind a parameter's text is no part of it, whichever it is."""
    for line_break in ("\n", "\r\n"):
        inner = line_break.join(["<parameter=query>", f"a{line_break}b", "</parameter>"])
        assert calls(f"<function=search>{inner}</function>") == [("search", {"query": f"a{line_break}b"})]
    assert calls("<function=search><parameter=query>\na\r\n</parameter></function>") == [("search", {"query": "a\r"})]


values = st.text(alphabet="a \n\r<&", max_size=8).filter(lambda value: "<" not in value)
TAGS = [
    "<function=save><parameter=path>{0}</parameter></function>",
    '<invoke name="save"><parameter name="path">{0}</parameter></invoke>',
    '<function name="save"><param name="path">{0}</param></function>',
]


@pytest.mark.parametrize("tags", TAGS)
@given(values, st.sampled_from(["\n", "\r\n"]))
def test_a_framed_value_is_what_stands_in_its_frame(tags, value, line_break):
    """Whatever a value begins and ends with, a line break around it is taken off, once at each end."""
    if value[-1:] != "\r" and not (line_break == "\n" and value[:1] == "\n" and value[-1:] == "\r"):
        assert calls(tags.format(f"{line_break}{value}{line_break}")) == [("save", {"path": value})]


@pytest.mark.parametrize("tags", TAGS)
@pytest.mark.parametrize("value", ["def f():\n    pass\n", "\na", "a\n", "\n", "\r\n", "a\r\n", "\r\na", " a ", "\n a"])
def test_an_inline_value_is_kept_to_the_letter(tags, value):
    """A value that stands on the line of a tag has no frame: an edit's last line break is its own."""
    assert calls(tags.format(value)) == [("save", {"path": value})]
