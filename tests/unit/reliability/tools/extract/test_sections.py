"""Calls in sections of special tokens: what is cut or strange in them is refused, never lost."""

from __future__ import annotations

import pytest

from reliability.tools import extract_calls
from tests.support.extracting import BOX, calls

OPEN, CLOSE, SEP = "<|open|>", "<|close|>", "<|sep|>"
ARGUMENT = f'{OPEN}argument key="query" type="string"{SEP}x{CLOSE}argument{SEP}'
KIMI = f'{OPEN}call tool="search" index="1"{SEP}{ARGUMENT}{CLOSE}call{SEP}'
PLAMO = (
    "<|plamo:begin_tool_name:plamo|>search<|plamo:end_tool_name:plamo|>"
    '<|plamo:begin_tool_arguments:plamo|><|plamo:msg|>{"query": "x"}<|plamo:end_tool_arguments:plamo|>'
)
QWEN = '✿FUNCTION✿: search\n✿ARGS✿: {"query": "x"}\n✿RESULT✿'


@pytest.mark.parametrize("text", [KIMI, PLAMO, QWEN])
def test_each_is_read(text):
    """One call, and nothing of it is left as text."""
    assert calls(text) == [("search", {"query": "x"})]
    assert extract_calls(text, BOX).text == ""


@pytest.mark.parametrize("text", [KIMI, PLAMO, QWEN.removesuffix("\n✿RESULT✿")])
def test_a_call_that_is_cut_is_reported(text):
    """At every place behind its name, up to where its arguments end: no call, and no prose that ends well."""
    begin = text.index("search") + len("search") + 1
    end = text.index("}") if "}" in text else len(text)
    for at in range(begin, end):
        found = extract_calls(text[:at], BOX)
        assert not found.calls
        assert found.malformed, text[:at]


def test_types_and_escapes_of_attributes():
    """A type says whether a value is a string; quotes in an attribute are escaped."""
    typed = KIMI.replace('type="string"', 'type="number"').replace("x<", "5<")
    assert calls(typed) == [("search", {"query": 5})]
    assert calls(KIMI.replace('key="query"', 'key="q&quot;&amp;"')) == [("search", {'q"&': "x"})]


@pytest.mark.parametrize("text", ["✿FUNCTION✿ is a mark. ", "✿FUNCTION✿: nothing known\n", "`<|open|>call tool=`. "])
def test_a_mention_is_prose(text):
    """Marks without a call of a declared tool stay in the text."""
    assert extract_calls(text, BOX).text == text
