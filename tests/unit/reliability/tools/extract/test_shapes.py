"""JSON values that are calls."""

from __future__ import annotations

from reliability.tools import extract_calls
from tests.support.extracting import BOX, calls


def test_model_ids_are_kept():
    """An id that stands next to a call comes with it."""
    assert extract_calls('{"id": "c1", "function": {"name": "search", "arguments": {}}}', BOX).calls[0].id == "c1"
    assert extract_calls("[TOOL_CALLS]search[CALL_ID]abc123def[ARGS]{}", BOX).calls[0].id == "abc123def"
    kimi = "<|tool_call_begin|>functions.search:3<|tool_call_argument_begin|>{}<|tool_call_end|>"
    assert [(call.name, call.id) for call in extract_calls(kimi, BOX).calls] == [("search", "functions.search:3")]


def test_a_lone_name_is_a_call_only_where_nothing_is_needed():
    """`{"name": ...}` without arguments: in an envelope or as the whole answer, for a tool that requires
    none."""
    assert calls('<tool_call>{"name": "get_time"}</tool_call>') == [("get_time", {})]
    assert calls('{"name": "get_time"}') == [("get_time", {})]
    assert calls('Then {"name": "get_time"} follows.') == []
    assert calls("<tool_call>get_time</tool_call>") == [("get_time", {})]


def test_a_name_as_key_is_a_call_where_the_arguments_are_the_tools():
    """`{"search": {...}}` at the end of an answer: with its parameters only; other data under that key is data."""
    assert calls('{"search": {"query": "x"}}') == [("search", {"query": "x"})]
    assert calls('Now:\n[{"search": {"query": "x"}}]') == [("search", {"query": "x"})]
    for text in ('{"search": {"hits": 3}}', '{"search": {"query": "x"}} is it.', 'So {"search": {"query": "x"}}'):
        assert calls(text) == []


def test_python_as_the_whole_answer():
    """An object is all arguments where its keys are the parameters; what can't be read is refused, not an answer."""
    assert calls('search({"query": "x"});') == [("search", {"query": "x"})]
    assert calls('"search"(query="x")') == [("search", {"query": "x"})]
    for text in ('search({"hits": 3})', 'search("x")', r'get\_time(a="x\_y")', "search(query=f(1))"):
        found = extract_calls(text, BOX)
        assert (found.calls, len(found.malformed)) == ((), 1), text
