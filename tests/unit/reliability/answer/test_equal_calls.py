"""Equal calls collapse into the first of them; what a stop breaks off spoils none. In pieces: test_attempt_loops.py."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.answer.equal_calls import collapse_calls, drop_equal, read_stopped
from reliability.loops import Kind, Loop, Scan, finish, step
from reliability.tools import RawCall
from reliability.types import ToolCall
from tests.support.judgements import BOX

SPELLINGS = ['{{"q":"{0}","n":1}}', '{{ "n": 1,  "q": "{0}" }}', '{{"n":1,\n"q":"{0}"}}']
drawn = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(SPELLINGS), st.none() | st.text(max_size=2)))


def written(query: str) -> str:
    return json.dumps({"name": "search", "arguments": {"q": query}}) + "\n"


def stop(text: str) -> Loop:
    """What a text is stopped for."""
    loop = finish(step(Scan(), text)[0])[1]
    assert loop is not None
    return loop


@given(drawn)
def test_the_first_of_equal_calls_stands_for_all(calls):
    """Order is kept, nothing else is dropped, and doing it twice changes nothing."""
    raw = [
        RawCall(name="search", arguments=spelling.format(letter), id=id, format="bare")
        for letter, spelling, id in calls
    ]
    kept, copies = collapse_calls(raw, BOX)

    assert [json.loads(call.arguments)["q"] for call in kept] == list(dict.fromkeys(letter for letter, *_ in calls))
    assert [raw.index(call) for call in kept] == sorted(raw.index(call) for call in kept)
    assert copies == len(raw) - len(kept)
    assert collapse_calls(kept, BOX) == (kept, 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("search", '{"q": 1}'), ("search", '{"q": "1"}')),
        (("search", '{"q": true}'), ("search", '{"q": 1}')),
        (("search", '{"q": "a "}'), ("search", '{"q": "a"}')),
        (("search", '{"q": "a"}'), ("fetch", '{"q": "a"}')),
        (("search", '{"q": [1, 2]}'), ("search", '{"q": [2, 1]}')),
        (("search", '{"q": "a"}'), ("search", '{"q": "a", "n": null}')),
    ],
)
def test_calls_that_say_something_else_both_stay(one, other):
    """Type, white space inside a value, order of a list, another tool: each makes another call."""
    raw = [RawCall(name=name, arguments=arguments) for name, arguments in (one, other)]

    assert collapse_calls(raw, BOX) == (tuple(raw), 0)


def test_refused_calls_are_no_copies():
    """Where nothing is delivered, nothing was made equal."""
    raw = tuple(RawCall(name="search", arguments=given, format="bare") for given in ("{}", '{"q": 1}'))
    same = tuple(ToolCall(id=id, name="search", arguments='{"q":"x"}') for id in "ab")

    assert drop_equal(raw, ()) == raw
    assert drop_equal(raw, same) == raw[:1]


@pytest.mark.parametrize("tail", ["", '{"name": "se', '{"name": "search", "arguments": {"q": "ca'])
def test_a_copy_that_was_broken_off_is_left_out(tail):
    """A cycle of calls is read up to a complete copy, and that something was left out is counted."""
    text = "Let me look.\n" + written("cats") * 80 + tail
    found, cut_off = read_stopped(text, 0, BOX, stop(text))

    assert {call.arguments["q"] for call in found.calls} == {"cats"}
    assert (found.malformed, found.text.strip(), cut_off) == ((), "Let me look.", int(bool(tail)))


def test_a_call_behind_the_copies_that_has_come_is_kept():
    """What arrived complete with the third copy is no less a call than what stands before it."""
    text = "".join(f"<tool_call>{written(query)}</tool_call>\n" for query in ("cats", "cats", "cats", "dogs"))
    found, _ = read_stopped(text, 0, BOX, stop(text))

    assert [call.arguments["q"] for call in collapse_calls(found.calls, BOX)[0]] == ["cats", "dogs"]


def test_what_is_no_row_of_calls_is_read_as_it_stands():
    """A cycle of prose, or inside one call's argument, is cut nowhere: a broken call stays a broken call."""
    prose = written("cats") + "And so it goes on and on. " * 40
    broken = written("cats") + '{"name": "search", "arguments": {"q": "' + "ha ha " * 7_000

    assert [call.arguments["q"] for call in read_stopped(prose, 0, BOX, stop(prose))[0].calls] == ["cats"]
    assert read_stopped(broken, 0, BOX, stop(broken))[0].malformed
    assert stop(prose).kind is stop(broken).kind is Kind.CYCLE


@pytest.mark.parametrize(("count", "left"), [(1, 1), (2, 2), (3, 1), (9, 1)])
def test_a_pair_of_native_calls_is_meant(count, left):
    """A tool that draws or counts is called twice on purpose; from three on a call repeats itself."""
    raw = [RawCall(name="search", arguments='{"q":"a"}', id=f"c{at}") for at in range(count)]

    assert len(collapse_calls(raw, BOX)[0]) == left
