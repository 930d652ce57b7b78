"""The Harmony format: messages, and what each of them is."""

from __future__ import annotations

from reliability.tools import extract_calls
from tests.support.extracting import BOX, calls


def test_harmony_messages_are_told_apart():
    """Thinking is reasoning, preambles and the final channel are text, a recipient makes a call."""
    found = extract_calls(
        "<|channel|>analysis<|message|>Let me see.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>"
        '{"query":"x"}'
        "<|call|>rest<|start|>assistant<|channel|>final<|message|>Bye.<|return|>",
        BOX,
    )

    assert found.reasoning == "Let me see."
    assert found.text == "I look.\nrest\nBye."
    assert [(call.name, call.arguments) for call in found.calls] == [("search", {"query": "x"})]


def test_harmony_marks_inside_a_call_are_its_text():
    """A call of another notation may write about Harmony."""
    inner = "<|start|>assistant<|channel|>final<|message|>x<|end|>"

    assert calls(f'<tool_call>{{"name": "search", "arguments": {{"query": "{inner}"}}}}</tool_call>') == [
        ("search", {"query": inner})
    ]
