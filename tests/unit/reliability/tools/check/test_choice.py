"""What the client allows: `tool_choice` and `parallel_tool_calls`."""

from __future__ import annotations

import pytest

from reliability.tools import BadTools, Flaws, Malformed, RawCall, check_calls, parse_choice
from tests.support.call_values import IDS, made
from tests.unit.reliability.tools.check.test_complaints import BOX

SEARCH = RawCall(name="search", arguments='{"query": "x"}')
CLOCK = RawCall(name="clock", arguments="{}")
NAMED = {"type": "function", "function": {"name": "search"}}
ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "required", "tools": [{"type": "function", "name": "clock"}]},
}


def kinds(calls, choice=None, parallel=None, **more):
    return [violation.kind for violation in check_calls(calls, BOX, choice, parallel, new_id=IDS, **more).violations]


@pytest.mark.parametrize(
    ("choice", "calls", "good"),
    [
        (None, [], True),
        ("auto", [], True),
        ("auto", [SEARCH, CLOCK], True),
        ("none", [], True),
        ("none", [CLOCK], False),
        ("required", [CLOCK], True),
        ("required", [], False),
        ("any", [], False),
        (NAMED, [SEARCH], True),
        (NAMED, [], False),
        (NAMED, [CLOCK], False),
        (NAMED, [SEARCH, CLOCK], False),
        ({"type": "function", "name": "search"}, [SEARCH], True),
        (ALLOWED, [CLOCK], True),
        (ALLOWED, [SEARCH], False),
        (ALLOWED, [], False),
        ("nonsense", [CLOCK], True),
    ],
)
def test_tool_choice_is_obeyed(choice, calls, good):
    """Every form of the client's choice is kept to; a call against it is refused, not dropped."""
    assert (kinds(calls, choice) == []) is good
    assert good or set(kinds(calls, choice)) == {Flaws.TOOL_CHOICE}


def test_parallel_calls_are_refused_where_one_was_wanted():
    """Two calls where one was allowed are a violation: none of them is dropped to make it fit."""
    assert kinds([SEARCH, CLOCK], parallel=False) == [Flaws.PARALLEL]
    assert kinds([SEARCH], parallel=False) == []
    assert kinds([SEARCH, CLOCK], parallel=True) == []


def test_an_unreadable_call_is_a_call_for_the_choice():
    """A malformed call answers `required`, and counts against a single one."""
    bad = [Malformed(raw="x", reason="y", format="z")]

    assert kinds([], "required", malformed=bad) == [Flaws.MALFORMED]
    assert kinds([SEARCH], None, False, malformed=bad) == [Flaws.MALFORMED, Flaws.PARALLEL]


@pytest.mark.parametrize(
    "choice",
    [
        "sometimes",
        3,
        {"type": "function", "function": {"name": "nope"}},
        {},
        {"type": "allowed_tools"},
        {"type": "allowed_tools", "tools": [1]},
        {"type": "allowed_tools", "allowed_tools": 3},
        {"type": "function", "function": {"name": ["x"]}},
    ],
)
def test_a_choice_that_cant_be_meant_is_the_clients_mistake(choice):
    """Unknown words, forms and tools are a 400 with a place."""
    bad = parse_choice(choice, BOX)

    assert isinstance(bad, BadTools)
    assert bad.path.startswith("/tool_choice")


def test_without_tools_there_is_nothing_to_choose():
    """No tools: no call is allowed, and requiring one is a mistake."""
    assert parse_choice(None, made([])) == parse_choice("none", BOX)
    assert isinstance(parse_choice("required", made([])), BadTools)
