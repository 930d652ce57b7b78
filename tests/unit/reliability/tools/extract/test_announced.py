"""Calls behind words that announce them: of declared tools only."""

from __future__ import annotations

import pytest

from reliability.tools import extract_calls
from tests.support.extracting import BOX, calls

READ = [
    'Action: search\nAction Input: {"query": "x"}',
    'to=functions.search {"query": "x"}',
    'Action: [{"tool_name": "search", "parameters": {"query": "x"}}]',
    'Action:\n```json\n[{"name": "search", "parameters": {"query": "x"}}]\n```',
]


@pytest.mark.parametrize("text", READ)
def test_each_is_read(text):
    """One call, and neither the words nor the fence are left."""
    assert calls(text) == [("search", {"query": "x"})]
    assert extract_calls(text, BOX).text == ""


@pytest.mark.parametrize("text", READ)
def test_of_an_undeclared_tool_it_is_prose(text):
    """Data behind the same words is data."""
    found = extract_calls(text.replace("search", "nobody"), BOX)
    assert not found.calls


@pytest.mark.parametrize("text", [READ[0][:-1], READ[1].replace('"x"', "x"), READ[2][:-3]])
def test_a_broken_one_is_reported(text):
    """A declared name and arguments that can't be read are a broken call."""
    assert extract_calls(text, BOX).malformed
