"""Parameters as tags of their own name: what is a call, what is broken, and what is prose."""

from __future__ import annotations

import pytest

from reliability.tool_calls import RepairKind
from reliability.tools import build_toolbox, extract_calls
from reliability.tools.extract.children import may_have_children
from tests.support.renderings import tool

NOTE = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "count": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "integer"}},
        "box": {"type": "object", "properties": {"w": {"type": "integer"}}},
    },
    "required": ["title"],
}
BOX = build_toolbox([tool("note", NOTE), tool("rooms", {})])
M3 = "]<]minimax[>["


def found(text):
    one = extract_calls(text, BOX)
    return [(call.name, call.arguments) for call in one.calls], len(one.malformed)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("<note><title>a</title></note>", {"title": "a"}),
        ("<note>\n<title>\na\nb\n</title>\n<count>2</count>\n</note>", {"title": "a\nb", "count": 2}),
        ("<note><title><b>x</b></title></note>", {"title": "<b>x</b>"}),
    ],
)
def test_the_tags_of_a_declared_tool_are_a_call(text, arguments):
    """Each child is a parameter, typed by its schema, and its text is kept to the letter."""
    assert found(text) == ([("note", arguments)], 0)


@pytest.mark.parametrize("text", ["<rooms></rooms>", "<rooms/>", "<rooms>\n</rooms>"])
def test_a_tool_that_takes_nothing_is_called_by_its_tag(text):
    """An empty tag is a call where nothing is required."""
    assert found(text) == ([("rooms", {})], 0)


@pytest.mark.parametrize(
    "text",
    ["<note>A remark.</note>", "<note></note>", "<p><title>a</title></p>", "`<note>`<title>a</title>", "<note/>"],
)
def test_other_tags_are_prose(text):
    """A tag without a parameter in it, or of another name, is none."""
    assert found(text) == ([], 0)


@pytest.mark.parametrize(
    "text",
    ["<note><title>a</title>", "<note><title>a", "<note><count>1</count></note>", "<note><title>a</title><x>1</x>"],
)
def test_a_broken_one_is_reported(text):
    """Where a parameter has begun a call was meant: what is cut, missing or strange in it is no prose."""
    assert found(text) == ([], 1)


def m3(inner: str) -> str:
    return f'{M3}<invoke name="note">{M3}<title>a{M3}</title>{inner}{M3}</invoke>'


@pytest.mark.parametrize(
    ("inner", "arguments"),
    [
        (f"{M3}<tags>{M3}<item>1{M3}</item>{M3}<item>2{M3}</item>{M3}</tags>", {"tags": [1, 2]}),
        (f"{M3}<box>{M3}<w>3{M3}</w>{M3}</box>", {"box": {"w": 3}}),
        (f"{M3}<count>3</count>", {"count": 3}),
    ],
)
def test_values_of_minimax_nest(inner, arguments):
    """Children of a child are items or members; a closing tag may lack the token."""
    assert found(m3(inner)) == ([("note", {"title": "a", **arguments})], 0)


@pytest.mark.parametrize(
    ("inner", "kind"),
    [
        (f"{M3}<count>3</count>", RepairKind.ENVELOPE),
        (f"{M3}<tags>[1, ]{M3}</tags>", RepairKind.LITERAL),
        (f"{M3}<box>{{'w': 1}}{M3}</box>", RepairKind.LITERAL),
    ],
)
def test_what_is_repaired_in_a_child_is_noted(inner, kind):
    """A lost token, and a literal that is no JSON."""
    (call,) = extract_calls(m3(inner), BOX).calls
    assert {repair.kind for repair in call.repairs} == {kind}


@pytest.mark.parametrize(
    "inner", [f"{M3}<count>3", f"{M3}<tags>x{M3}<item>1{M3}</item>{M3}</tags>", f"{M3}<title>b{M3}</title>"]
)
def test_what_has_two_readings_is_refused(inner):
    """No end, text beside tags, and a parameter given twice."""
    assert found(m3(inner)) == ([], 1)


def test_a_child_may_still_come():
    """What a stream waits for behind a tag of a declared name."""
    assert all(may_have_children(text) for text in ("<note>", "<note>\n", "<note><", "<note>\n<ti"))
    assert not any(may_have_children(text) for text in ("<note>a", "<note><title>", "<note"))
