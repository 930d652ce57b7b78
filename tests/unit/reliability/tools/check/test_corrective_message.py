"""The corrective message."""

from __future__ import annotations

from reliability.tools import RawCall, check_calls, corrective_message
from tests.support.call_values import IDS, made
from tests.support.renderings import tool

BOX = made(
    [
        tool(
            "search",
            {
                "properties": {
                    "query": {"type": "string"},
                    "limit": {"type": ["integer", "null"]},
                    "mode": {"enum": ["a", "b"]},
                    "free": True,
                },
                "required": ["query"],
            },
        ),
        tool("clock", {}),
    ]
)


def test_the_corrective_message_says_everything():
    """The user's wording, every violation with its place, the guess at the name, and the tools with their
    signatures."""
    bad = [RawCall(name="serch", arguments="{}"), RawCall(name="search", arguments='{"limit": "x"}')]

    message = corrective_message(check_calls(bad, BOX, new_id=IDS).violations, BOX)

    assert message.startswith(
        "Your previous response contained an invalid tool call. The error was: /0/name there is no"
    )
    assert "did you mean 'search'?" in message
    assert "/1/arguments/query (in search) is required" in message
    assert "/1/arguments/limit (in search) must be integer or null" in message
    assert "You must respond with valid JSON matching the tool schema exactly. Available tools: search(" in message
    assert message.endswith("search(query: string, limit?: integer|null, mode?: 'a'|'b', free?: any), clock().")
    assert "Available tools: none." in corrective_message([], made([]))
