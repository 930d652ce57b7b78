"""Is a call right? Known-good and known-bad ones."""

from __future__ import annotations

import pytest

from deployments.evaluate.calls.call_score import are_right, are_valid

WANTED = [{"name": "f", "arguments": {"city": ["New York"], "days": ["", 1]}}]
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        ([("f", '{"city": "New York"}')], True),
        ([("f", '{"city": "new york", "days": 1}')], True),
        ([("f", '{"city": "new-york."}')], True),
        ([("f", '{"city": "Boston"}')], False),
        ([("f", '{"city": "New York", "days": 2}')], False),
        ([("f", '{"city": "New York", "more": 1}')], False),
        ([("f", '{"days": 1}')], False),
        ([("g", '{"city": "New York"}')], False),
        ([("f", '{"city": "New York"}'), ("f", '{"city": "New York"}')], False),
        ([("f", "[]")], False),
        ([("f", "{")], False),
        ([], False),
    ],
)
def test_a_call_is_right(calls, right):
    """The wanted one and no other, whatever the spelling of its texts."""
    assert are_right(calls, WANTED) is right


@pytest.mark.parametrize(
    ("calls", "valid"),
    [
        ([("f", '{"city": "x"}')], True),
        ([("f", '{"city": 3}')], False),
        ([("f", '{"days": 3}')], False),
        ([("g", '{"city": "x"}')], False),
        ([("f", "no")], False),
        ([], False),
    ],
)
def test_a_call_is_valid(calls, valid):
    """By its tool's schema, and only where there is one."""
    assert are_valid(calls, [TOOL]) is valid
