"""Calls written as tags: the types and the edges of bare values."""

from __future__ import annotations

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
    """One line break at each end is framing; every other one belongs to the value."""
    assert calls("<function=save>\n<parameter=path>\n\na\n\n</parameter>\n</function>") == [("save", {"path": "\na\n"})]


def test_line_ends_of_windows_frame_a_parameter():
    """The line break that stands before and behind a parameter's text is no part of it, whichever it is."""
    for line_break in ("\n", "\r\n"):
        inner = line_break.join(["<parameter=query>", f"a{line_break}b", "</parameter>"])
        assert calls(f"<function=search>{inner}</function>") == [("search", {"query": f"a{line_break}b"})]
    assert calls("<function=search><parameter=query>\na\r\n</parameter></function>") == [("search", {"query": "a\r"})]
