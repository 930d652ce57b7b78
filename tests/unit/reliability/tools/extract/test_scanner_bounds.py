"""Extraction of the enormous and the hostile: it ends, in time that grows with the text, and says what it left out."""

import json
import sys

import pytest

from reliability.tools import build_toolbox, extract_calls
from reliability.tools.extract.delimiter_search import find_delimiter_at
from reliability.tools.extract.pythonic import _SIGN, is_one_call
from reliability.tools.extract.settling import MALFORMED_MAX
from tests.support.extracting import BOX, CALL, calls


def test_calls_and_reports_have_bounds():
    """More calls, or more unreadable pieces, than the bound are one report with all the rest in it."""
    many = extract_calls(CALL * 200, BOX)
    bad = extract_calls("<tool_call>x</tool_call>\n" * 100, BOX)
    assert len(many.calls) == 128
    assert "more than 128" in many.malformed[0].reason
    assert "more than 128" in extract_calls("[" + ",".join([CALL] * 200) + "]", BOX).malformed[0].reason
    assert len(bad.malformed) == MALFORMED_MAX
    assert bad.malformed[-1].raw.count("<tool_call>") == 100 - MALFORMED_MAX + 1


HOSTILE = [
    "[", "{", "[{", '{"a":', '{"name":', "<tool_call>", "</tool_call>", "<think>", '{"a":/*', '{"a":(',
    "<function=a>", "[[1],", '{"\\', '{"a":[[1],[1]],"a":2} ', "x <tool_call> y ", "functools[",
    '{"name":"search","arguments":{"a":"', '<tool name="search"', "search[ARGS]{", "[search]{} ",
    "<function=search>{}", "`", "\n", "call:search{", "[search(a=",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_repetition_gives_an_answer(piece):
    """A long run of any opening ends in an answer, without running out of stack."""
    text = piece * (100_000 // len(piece))
    found = extract_calls(text, BOX)
    assert len(found.calls) <= 128
    assert len(found.malformed) <= MALFORMED_MAX


def test_readings_that_fail_are_paid_for():
    """However many openings there are, only so many are read to the end of the text: the work is linear."""
    text = '{"a":/*' * 4_000
    reads = 0

    def count(frame, event, _):
        nonlocal reads
        reads += event == "call" and frame.f_code.co_name == "read"

    sys.setprofile(count)
    try:
        found = extract_calls(text, BOX)
    finally:
        sys.setprofile(None)

    assert 0 < reads < 100
    assert found.text == text


@pytest.mark.parametrize(
    "text",
    [
        "I say " + "<tool_call>" * 2_000,
        "So" + "</tool_call>" * 2_000 + "or so",
        "search(query='x')\n" * 2_000 + "or so",
    ],
)
def test_what_is_looked_at_once_is_not_looked_at_again(text):
    """A row of openers, of closers, or of Python lines, that comes to nothing is read a few times at most, not from
    each of its parts."""
    read = 0

    def count(frame, event, _):
        nonlocal read
        read += event == "call" and frame.f_code.co_name in ("skip_space", "_read_call")

    sys.setprofile(count)
    try:
        assert extract_calls(text, BOX).calls == ()
    finally:
        sys.setprofile(None)

    assert read < 30 * 2_000


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_text_without_an_end_is_read_once(quote):
    """Law: outside of a text an escaped quotation mark opens none. So a text that never ends is read to its end from
    its first mark alone, and linear in its length; brackets within texts count for nothing."""
    assert [sign[0] for sign in _SIGN.finditer(f"(\\{quote}a)b{quote}")] == ["(", ")"]
    assert is_one_call(f"search(query=x, y={quote}(\\{quote}{quote})", 0)
    assert not is_one_call(f"search(query={quote}(\\{quote}) or so", 0)


@pytest.mark.parametrize("word", ["to=functions.search", "call:search", "functions.search"])
def test_the_bracket_of_a_word_is_looked_for_near_it(word):
    """A word of a call in the middle of a line looks a bounded stretch ahead, so that a row of such words costs linear
    time: it doesn't find a bracket that stands behind all of them."""
    text = f"I say {word}{{ " + f"or {word} " * 2_000 + "{"
    places = [at for at in range(len(text) - 400) if text[at] in "=:." or text[at : at + 1] == "{"]
    found = [one for at in places if (one := find_delimiter_at(text, at, 0)) is not None]
    assert found
    assert max(one.held - one.start for one in found) < 600


@pytest.mark.parametrize("noise", [('{"a":[' + "1," * 3_000) * 15, "search(query=\n" * 3_000])
def test_a_spent_reader_reports_what_may_be_a_call(noise):
    """When too much couldn't be read, as JSON or as Python, bare JSON with a declared name is malformed instead of
    overlooked."""
    found = extract_calls(noise + CALL, BOX)
    assert not found.calls, "it isn't spent"
    assert found.malformed
    assert extract_calls(noise, BOX).text == noise


def test_big_strings_pass():
    """A megabyte inside one argument is a call like any other."""
    big = "x\n" * 500_000
    call = {"name": "search", "arguments": {"query": big}}
    for text in (f"<tool_call>{json.dumps(call)}</tool_call>", repr(call)):
        assert calls(text) == [("search", {"query": big})]


@pytest.mark.parametrize("box", [BOX, build_toolbox([])], ids=["tools", "no tools"])
@pytest.mark.parametrize("opener", ["functools", "`functools`", "-> tool/function_call "])
def test_each_step_moves_forward(box, opener):
    """Law: an opener that ends before the sign it was found by is left behind, whatever is declared."""
    text = f"<think>hm</think>{opener}[{{name"
    assert extract_calls(text, box).calls == ()
