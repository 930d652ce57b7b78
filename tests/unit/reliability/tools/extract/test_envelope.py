"""What stands between an opener and its closer."""

from __future__ import annotations

import pytest

from reliability.tools import Extraction, extract_calls
from tests.support.extracting import BOX, CALL, calls


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{CALL}\n{CALL}</tool_call>",
        f"<tool_call>{CALL}, {CALL}",
        f"<tool_call>[{CALL}, {CALL}]</tool_call>",
        '[TOOL_CALLS]search[ARGS]{"query": "x"}search[ARGS]{"query": "x"}',
        '<minimax:tool_call><invoke name="search"><parameter name="query">x</parameter></invoke>\n'
        '<invoke name="search"><parameter name="query">x</parameter></invoke></minimax:tool_call>',
        "[search(query='x'), search(query='x')]",
        f"{CALL}\n{CALL}",
    ],
)
def test_one_envelope_may_hold_several_calls(text):
    """All calls of one envelope are found, however they are set apart; prose behind an open one stays."""
    assert calls(text) == [("search", {"query": "x"})] * 2
    assert calls(f"<tool_call>{CALL}\n[1, 2] and more") == [("search", {"query": "x"})]


def test_a_mark_in_the_middle_of_a_line_opens_a_call_in_that_line_only():
    """A mark that prose mentions makes no call of the JSON that a later line shows."""
    data = '{"name": "made_up", "arguments": {}}'
    mentioned = f"I write <tool_call> now and then.\nMore of that, as an example: {data}"

    assert extract_calls(mentioned, BOX) == Extraction(text=mentioned)
    assert [call.name for call in extract_calls(f"So <tool_call> here it is: {data}", BOX).calls] == ["made_up"]
    assert [call.name for call in extract_calls(f"So <tool_call>\n{data}", BOX).calls] == ["made_up"]
