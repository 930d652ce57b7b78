"""A name, and JSON behind it."""

from __future__ import annotations

from reliability.tools import extract_calls
from tests.support.extracting import BOX, calls


def test_json_behind_a_name_and_in_parentheses():
    """`functions.name({...})` and a fenced object behind a name are calls of that tool."""
    assert calls('functions.search({"query": "x"})') == [("functions.search", {"query": "x"})]
    assert calls('search\n```json\n{"query": "x"}\n```') == [("search", {"query": "x"})]
    assert extract_calls('<tool_call>search(["x"])</tool_call>', BOX).malformed
    assert extract_calls('<tool_call>search[ARGS]["x"]</tool_call>', BOX).malformed
