"""Calls in sections of special tokens: what is cut or strange in them is refused, never lost."""

import pytest

from reliability.tools import extract_calls
from tests.support.extracting import BOX, calls
from tests.support.streaming import cut_at, play, whole

OPEN, CLOSE, SEP = "<|open|>", "<|close|>", "<|sep|>"
ARGUMENT = f'{OPEN}argument key="query" type="string"{SEP}x{CLOSE}argument{SEP}'
KIMI = f'{OPEN}call tool="search" index="1"{SEP}{ARGUMENT}{CLOSE}call{SEP}'
PLAMO = (
    "<|plamo:begin_tool_name:plamo|>search<|plamo:end_tool_name:plamo|>"
    '<|plamo:begin_tool_arguments:plamo|><|plamo:msg|>{"query": "x"}<|plamo:end_tool_arguments:plamo|>'
)
SOLAR = '<|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>search<|tool_call:args|>{"query": "x"}<|tool_call:end|>'
SOLAR_2 = "<|tool_call:start|>search\n<|tool_arg:start|>query<|tool_arg:value|>x<|tool_arg:end|>\n<|tool_call:end|>"
QWEN = '✿FUNCTION✿: search\n✿ARGS✿: {"query": "x"}\n✿RESULT✿'


@pytest.mark.parametrize(
    "text", [KIMI, PLAMO, SOLAR, SOLAR_2.removesuffix("<|tool_call:end|>"), QWEN.removesuffix("\n✿RESULT✿")]
)
def test_a_call_that_is_cut_is_reported(text):
    """At every place behind its name, up to where its arguments end: no call, and no prose that ends well."""
    begin = text.index("search") + len("search") + 1
    end = text.index("}") if "}" in text else len(text)
    for at in range(begin, end):
        found = extract_calls(text[:at], BOX)
        assert not found.calls
        assert found.malformed, text[:at]


def test_calls_of_solar_keep_their_ids_and_types():
    """Law: each call has the id that stands before it, and each value the type of its schema."""
    found = extract_calls(f"<|tool_calls|>{SOLAR}{SOLAR.replace('a1b2', 'z9y8')}<|calls|>", BOX)
    assert [call.id for call in found.calls] == ["a1b2c3d4e5", "z9y8c3d4e5"]
    assert (found.text, found.malformed) == ("", ())
    assert calls(SOLAR_2.replace(">x<", ">5 < 6<")) == [("search", {"query": "5 < 6"})]
    assert calls("<|tool_call:start|>get_time\n<|tool_call:end|>") == [("get_time", {})]


def test_types_and_escapes_of_attributes():
    """A type says whether a value is a string; quotes in an attribute are escaped."""
    typed = KIMI.replace('type="string"', 'type="number"').replace("x<", "5<")
    assert calls(typed) == [("search", {"query": 5})]
    assert calls(KIMI.replace('key="query"', 'key="q&quot;&amp;"')) == [("search", {'q"&': "x"})]


@pytest.mark.parametrize("text", ["✿FUNCTION✿ is a mark. ", "✿FUNCTION✿: nothing known\n", "`<|open|>call tool=`. "])
def test_a_mention_is_prose(text):
    """Marks without a call of a declared tool stay in the text."""
    assert extract_calls(text, BOX).text == text


@pytest.mark.parametrize("lost", ["tools", "tools<|sep|>", "tools<|open|>", "tools ", "tool\n"])
@pytest.mark.parametrize(
    "rest", [KIMI.removeprefix(OPEN), KIMI.removeprefix(OPEN).replace(SEP, "", 1), 'call tool="search"']
)
def test_lost_marks_make_no_text_of_a_call(lost, rest):
    """Where marks before a call are lost it is read, or asked for again; whole and streamed."""
    text = f"I look it up.{OPEN}{lost}{rest}"
    found = whole(text, BOX)
    assert found.refused or (found.calls, found.text) == ([("search", {"query": "x"})], "Ilookitup.")
    assert all(play(cut_at(text, [size]), BOX) == found for size in (1, 5, 1000))
