"""Calls that stand in a text."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops.text_calls import CALLS_MAX, read_text_calls

FUNCTION = {"name": "look", "arguments": {"path": "a"}}
LISTED = f"Calling tools:\n{[{'id': 'call_7', 'type': 'function', 'function': FUNCTION}]}"


@pytest.mark.parametrize(("text", "calls"), [
    ("Let me see.\n```bash\nls -l\n```\nThen I know.", [("bash", "ls -l")]),
    ("a.py\n```\nx = 1\n```", [("code", "x = 1")]), ("Thought: hm\n<code>\nprint(1)\n</code>", [("code", "print(1)")]),
    ("Thought: hm\n<code>\nprint(1)", [("code", "print(1)")]), (LISTED, [("look", '{"path":"a"}')]),
    ('Action: search\nAction Input: {"q": 1}', [("search", '{"q":1}')]), ("Action: finish", [("finish", "{}")]),
    ("Thought 3: x\nAction 3: finish", [("finish", "{}")]),
    ('<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>', [("f", '{"a":1}')]),
    ("<read_file>\n<path>a.py</path>\n</read_file>", [("read_file", "<path>a.py</path>")]),
    ("<execute_bash>ls</execute_bash>", [("execute_bash", "ls")]),
    ('{"tool": "f", "args": {"a": 1}}', [("f", '{"a":1}')]),
    ('Let me see.\n {"request": "f", "command": "ls"}\n', [("f", '{"command":"ls"}')]),
    ('I do it.\n{\n "request": "f",\n "path": "a"\n}', [("f", '{"path":"a"}')]),
    ('```json\n{"action": "f", "action_input": "x"}\n```', [("f", "x")]),
    *((talk, []) for talk in ("", "I look at it now.", "a < b and b > c", "<think>I could call f</think>")),
    *((data, []) for data in ("[1, 2]", '{"a": 1}', "Actions.", 'See:\n[1] {"name": "f"}', 'It is {"name": "f"}')),
])  # fmt: skip
def test_each_form_is_read(text: str, calls: list[tuple[str, str]]) -> None:
    """What a harness would run is a call, with its name and what it is asked; prose, thoughts and plain data are
    none."""
    assert [(call.name, call.arguments) for call in read_text_calls(text)][:1] == calls


def test_a_call_that_a_framework_repeats_is_the_same_call() -> None:
    """The id that it is written down with is none of the call, and an interpreter's call is its code."""
    assert read_text_calls(LISTED) == read_text_calls(LISTED.replace("call_7", "call_8"))
    noted = [{"id": "call_1", "function": {"name": "python_interpreter", "arguments": "print(1)"}}]
    code = "Thought: hm\n<code>\nprint(1)\n</code>"
    assert read_text_calls(f"{code}\nCalling tools:\n{noted}") == read_text_calls(code)


@given(st.text(alphabet="<>`{}[]'\"/:\nAction Inputtool_cde ", max_size=200))
def test_no_text_is_too_odd(text: str) -> None:
    """Whatever the text is, reading ends, with a bounded number of calls."""
    assert len(read_text_calls(text)) <= CALLS_MAX


@pytest.mark.parametrize(("head", "piece"), [
    *(("", one) for one in ("<a_b>", "```\n", "Action: x\n", "[[", "<tool_call>", "Calling tools: [", json.dumps("{"))),
    *(("```", one) for one in ("a", " ", "`", "a```")), *(("I wait.", one) for one in ("\n", " \n", " ")),
])  # fmt: skip
def test_reading_is_bounded(head: str, piece: str) -> None:
    """A text of openers, an opener whose line doesn't end, and white space cost no more than its bound allows: a
    history holds hundreds of them."""
    begun = time.process_time()
    for _ in range(5):
        read_text_calls(head + piece * (200_000 // len(piece)))
    assert time.process_time() - begun < 2.0
