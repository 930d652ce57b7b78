"""Calls that count only in a row that ends with the answer: all of them, or none."""

from __future__ import annotations

import pytest

from reliability.tools import extract_calls
from reliability.tools.extract.rows import goes_on
from tests.support.extracting import BOX, CALL
from tests.support.streaming import cut_at, inked, play, whole

FORMS = ['{{"search": {{"query": "{}"}}}}', """["search(query='{}')"]""", '[search]\n{{"query": "{}"}}']


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("between", ["\n", "\n\n", ",\n", ";\n"])
def test_a_row_is_calls_up_to_the_last(form, count, between):
    """Each of a row is a call where it ends the answer, and none where prose stands behind it."""
    row = between.join(form.format(at) for at in range(count))
    found = extract_calls(row, BOX)

    assert [call.arguments for call in found.calls] == [{"query": str(at)} for at in range(count)]
    assert not found.text
    assert extract_calls(f"{row}\nThat is how it is done.", BOX).calls == ()
    assert extract_calls(f"{row}\nThat is how it is done.", BOX).text == f"{row}\nThat is how it is done."


@pytest.mark.parametrize("form", FORMS)
def test_a_call_of_any_form_may_end_the_row(form):
    """Nothing is left as text between two calls; what stands apart from them by prose is data."""
    assert len(extract_calls(f"{form.format(1)}\n{CALL}", BOX).calls) == 2
    assert len(extract_calls(f"{form.format(1)}\nSo:\n{CALL}", BOX).calls) == 1


def test_fenced_calls_are_a_row():
    """The fence around each goes with it."""
    fenced = "\n".join(f"```json\n{FORMS[0].format(at)}\n```" for at in range(3))

    assert len(extract_calls(fenced, BOX).calls) == 3
    assert not extract_calls(fenced, BOX).text


@pytest.mark.parametrize(
    "text", ["[search]\n", "search(query='x", '{"search": {"query": "a } }', "sear", "search(a)\n[["]
)
def test_what_may_become_a_call_goes_on(text):
    """Brackets are open, or a name is cut off."""
    assert goes_on(text, 0, BOX)


@pytest.mark.parametrize("text", ["", "And then (as", "search (", "search(a) and {", "{} more", "[1] x"])
def test_what_is_prose_does_not(text):
    """It is no name, or goes on behind its brackets."""
    assert goes_on(text, 0, BOX) is (text == "search (")


@pytest.mark.parametrize("joint", [", \\\n", "\nand\n", "\nthen\n", "\n# second\n", "\n// then\n", ";\n", ",\n", "\n"])
@pytest.mark.parametrize("count", [2, 3])
def test_a_joint_between_calls_loses_none(joint, count):
    """All of a row are delivered, never one of several; and none where prose ends it. Whole and streamed."""
    row = joint.join(f"search(query='{at}')" for at in range(count))

    for text in (row, f"I look it up:\n{row}"):
        assert whole(text, BOX).calls == [("search", {"query": str(at)}) for at in range(count)]
        assert all(play(cut_at(text, [size]), BOX) == whole(text, BOX) for size in (1, 2, 5, 9, 1000))
    shown = f"{row}\nThat is how it is done."
    assert all(play(cut_at(shown, [size]), BOX) == ([], False, inked(shown)) for size in (1, 2, 5, 9, 1000))
