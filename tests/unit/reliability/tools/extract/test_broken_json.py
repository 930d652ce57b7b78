"""JSON that can't be read: where a call was meant by it, and where it is prose."""

from __future__ import annotations

import pytest

from reliability.tools.extract.broken_json import looks_like_a_call
from tests.support.extracting import BOX, CALL

MEANT = [
    '{"name": search", "arguments": {"query": "x"}}',
    '{"name" "search", "arguments": {"query": "x"}}',
    "[{'name': 'search', 'arguments': {'query': 5*11}}]",
    '{"tool": "search", "args": ',
    '{"name": "search"',
]
PROSE = [
    '{"name": "Bob", "arguments": {}}',
    '{"note": "search", "arguments": {}}',
    "{ return name: search, arguments: }",
    "name: search, arguments: {}",
    '{"a": 1} {"name": "search", "arguments": {',
    '{"a": 1, <tool_call>' + CALL,
    '{"name": "search"} is a name, and so is "arguments": ' + "x" * 400,
    '{"name": "search", ' + '"x": 1, ' * 100 + '"arguments": {}}',
]


@pytest.mark.parametrize(("text", "meant"), [(text, True) for text in MEANT] + [(text, False) for text in PROSE])
def test_a_call_is_meant_by_a_name_and_arguments_within_its_brackets(text, meant):
    """A declared name under a name's key, and a key of arguments or the end, near by and before the bracket closes."""
    assert looks_like_a_call(text, 0, BOX) is meant
