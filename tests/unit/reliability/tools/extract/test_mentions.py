"""Marks that prose talks of, and marks that were meant; streamed as well as whole."""

from __future__ import annotations

import pytest

from tests.evals.tool_cases import toolbox, written_calls
from tests.support.streaming import cut_at, inked, play, whole

TOOLS, _ = written_calls()
BOX = toolbox(TOOLS)
MARKS = [
    *("<tool_call>", "</tool_call>", "<tool_calls>", "<longcat_tool_call>", "<function_calls>", "</function_calls>"),
    *(
        "[TOOL_CALLS]",
        "[TOOL_REQUEST]",
        "[END_TOOL_REQUEST]",
        "<|python_tag|>",
        "<｜DSML｜tool_calls>",
        "<｜DSML｜invoke",
    ),
    *("<｜DSML｜invoke", "◁think▷", "<|START_THINKING|>", "<|inner_prefix|>"),
    *("<function=", "<parameter=", "<invoke name=", "<arg_key>", "<tool_code>", "<tool_sep>", "<find_part>", "<tool>"),
    *("<|open|>tools<|sep|>", "]<]minimax[>[", "✿FUNCTION✿", "<|tool_calls_section_begin|>", "<|START_ACTION|>"),
    *("<｜tool▁calls▁begin｜>", "<|tools_prefix|>", "<|plamo:begin_tool_requests:plamo|>", "<start_function_call>"),
    *("functools", "<|channel|>", "<|message|>", "<|call|>", "call:", "[ARGS]", "[CALL_ID]", "Action:", ">>>"),
    *(
        "-> tool/function_call",
        "function call<|role_sep|>",
        "commentary to=functions.",
        "<think>",
        "</think>",
        "[THINK]",
    ),
]
SENTENCES = [
    "You write a call between {m} and a closing tag. Then it goes on.",
    "The model writes {m}",
    "Use {m}, then stop.",
    "It is {m}.",
    "A call begins with {m} and the name find_part follows.",
    "`{m}` opens a call.",
    "The mark is `{m}`",
    "{m} is the mark that opens a call.",
    "- {m} opens it\n- `{m}` too\n",
    "I use {m} to call.\nThen more prose.\n\nAnd a paragraph.",
    "({m})",
    "Models wrote {m}\nfor a call.",
    "```\n{m}\n```\nis how it begins.",
    "An unclosed `{m}` and {m} here",
]
MEANT = [
    "<tool_call>",
    "I look it up. <tool_call>",
    "I look it up.\n<tool_call>\n",
    "<tool_call>find_part of K-7",
    "<tool_call>\nI look it up\n</tool_call>",
    "I look it up: <tool_call>the part</tool_call>",
    "find_part K-7 </tool_call>",
    "Look. </tool_call>",
    '{"name": "find_part", "arguments": {</tool_call>',
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_prose_that_talks_of_marks_is_prose(sentence):
    """No mark in a sentence is a call or a broken one, quoted or not, closed or not."""
    for mark in MARKS:
        text = sentence.format(m=mark)
        for size in (1, 4, 1000):
            assert play(cut_at(text, [size]), BOX) == ([], False, inked(text)), text


@pytest.mark.parametrize("text", MEANT)
def test_a_mark_that_was_meant_is_a_broken_call(text):
    """What begins as a call does and can't be read is asked for again, not delivered as an answer."""
    for size in (1, 4, 1000):
        assert play(cut_at(text, [size]), BOX) == whole(text, BOX) == ([], True, "")
