"""A name, and JSON behind it."""

import json

import pytest

from reliability.tool_calls import RepairKind
from reliability.tools import extract_calls
from tests.support.extracting import BOX, calls, kinds
from tests.support.streaming import inked, settled


def test_json_behind_a_name_and_in_parentheses():
    """`functions.name({...})` and a fenced object behind a name are calls of that tool."""
    assert calls('functions.search({"query": "x"})') == [("functions.search", {"query": "x"})]
    assert calls('search\n```json\n{"query": "x"}\n```') == [("search", {"query": "x"})]
    assert extract_calls('<tool_call>search(["x"])</tool_call>', BOX).malformed
    assert extract_calls('<tool_call>search[ARGS]["x"]</tool_call>', BOX).malformed


X, Y = '{"query": "x"}', '{"query": "y", "limit": 3}'


@pytest.mark.parametrize(("text", "found"), [
    (f"search{X}", [X]), (f"I look.\nsearch {X}\n", [X]), (f"I look:\n\nsearch{X}\nsearch {Y}", [X, Y]),
    (f"```\nsearch {X}\n```", [X]), (f"search{X}<|im_end|>", [X]), (f"search{X}\nObservation: 1\nsearch{Y}", [X]),
    (f"search{X}search{Y}", [X, Y]), (f"search{X}\nAnd then:\nsearch{Y}", [X, Y]), (f"`search {X}` finds x.", []),
    (f"A search {X}", []),
    ('See:\nsearch {"name": "x"}', []), ('See:\nsearch {"query": ...}', []), (f"See:\nfind {X}", []),
    (f"search {X} finds x", []), ("See:\nsearch {}", []), ("search {color: red}", []),
])  # fmt: skip
def test_a_name_and_all_arguments_are_a_call_in_a_line_of_its_own(text, found):
    """Law: `name{json}` of a declared tool, with arguments that fit it, is a call where nothing but such calls stands
    in its line; whole and streamed. Anything else is prose."""
    outcome = settled(text, BOX)
    assert outcome.calls == [("search", json.loads(one)) for one in found]
    assert outcome.refused or found or outcome.text == inked(text)


@pytest.mark.parametrize(("written", "options"), [
    ('{"sort": "date"}', {"sort": "date"}),
    ('{\'k\':[{"z":1}],<|"|>a b<|"|>:<|"|>x<|"|>}', {"k": [{"z": 1}], "a b": "x"}),
    ('{"a:b": 1}', {"a:b": 1}), ("{ k : 1 }", {"k": 1}),
])  # fmt: skip
def test_a_key_of_the_brace_notation_is_read_without_its_quotes(written, options):
    """A key in the quotes of JSON or Python is the text in them, at every depth; since the notation has no such quotes,
    and none of the white space around a bare key, taking them off is noted."""
    for text, found in (
        (f"<|tool_call>call:save{{data:{written}}}<tool_call|>", {"data": options}),
        (f'<|tool_call>call:save{{"data":{written}}}<tool_call|>', {"data": options}),
        (f"<|tool_call>call:save{{data:{{a:[{written}]}}}}<tool_call|>", {"data": {"a": [options]}}),
    ):
        assert calls(text) == [("save", found)]
        assert kinds(text) <= {RepairKind.LITERAL, RepairKind.LAYOUT}
        assert kinds(text)


def test_a_key_that_can_not_be_read_in_one_way_makes_no_call():
    """A key given twice, in quotes and without, and a quoted key without its colon are refused."""
    for written in ('{a:1,"a":2}', '{"a" 1}', '{"a:1}'):
        assert extract_calls(f"<|tool_call>call:save{{data:{written}}}<tool_call|>", BOX).malformed


@pytest.mark.parametrize("written", ["a ", "  a", "a\n", "\ta\r\n"])
def test_white_space_around_a_bare_text_is_taken_off_with_a_note(written):
    """A text of the brace notation without its quotes has no edges of its own; white space that isn't layout in any
    notation stays, and around a number there is nothing to note."""
    text = f"<|tool_call>call:save{{path:{written},on: true }}<tool_call|>"
    assert calls(text) == [("save", {"path": "a", "on": True})]
    assert kinds(text) == {RepairKind.LAYOUT}
    assert calls("<|tool_call>call:save{path:a\xa0}<tool_call|>") == [("save", {"path": "a\xa0"})]
    assert kinds("<|tool_call>call:save{on: true }<tool_call|>") == set()


READ = [
    'Action: search\nAction Input: {"query": "x"}', 'to=functions.search {"query": "x"}',
    'Action: [{"tool_name": "search", "parameters": {"query": "x"}}]',
    'Action:\n```json\n[{"name": "search", "parameters": {"query": "x"}}]\n```',
]  # fmt: skip


@pytest.mark.parametrize("text", READ)
def test_of_an_undeclared_tool_it_is_prose(text):
    """Data behind the same words is data."""
    found = extract_calls(text.replace("search", "nobody"), BOX)
    assert not found.calls


@pytest.mark.parametrize("text", [READ[0][:-1], READ[1].replace('"x"', "x"), READ[2][:-3]])
def test_a_broken_one_is_reported(text):
    """A declared name and arguments that can't be read are a broken call."""
    assert extract_calls(text, BOX).malformed
