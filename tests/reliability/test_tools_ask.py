"""Asking again, and what the client allows: choice, ids, the corrective message and the ladder."""

from __future__ import annotations

import pytest

from reliability.escalation.retry_strategy import RETRY_STRATEGY, Rung, next_reask
from reliability.tools import (
    BadTools,
    Flaws,
    Malformed,
    RawCall,
    check_calls,
    corrective_message,
    id_source,
    ids_in,
    parse_choice,
)
from reliability.tools.check.ids import IDS_TRIED_MAX, assign
from tests.reliability.renderings import tool
from tests.reliability.values import IDS, made

BOX = made(
    [
        tool(
            "search",
            {
                "properties": {
                    "query": {"type": "string"},
                    "limit": {"type": ["integer", "null"]},
                    "mode": {"enum": ["a", "b"]},
                    "free": True,
                },
                "required": ["query"],
            },
        ),
        tool("clock", {}),
    ]
)
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


def test_ids_come_from_the_source_and_are_the_same_again():
    """A missing id is given from the seed, deterministically; one that was used is replaced, on record."""
    calls = [SEARCH, RawCall(name="clock", arguments="{}", id="call_1")]
    found = check_calls(calls, BOX, new_id=id_source("r1"), used_ids={"call_1"})

    assert found == check_calls(calls, BOX, new_id=id_source("r1"), used_ids={"call_1"})
    assert found.calls[0].id == id_source("r1")(0) != id_source("r2")(0)
    assert [repair.path for repair in found.repairs] == ["/1/id"]


def test_a_source_that_repeats_itself_still_gives_unique_ids():
    """Even a constant source can't make two ids alike."""
    ids = assign([None, None, "same"], {"same_0"}, lambda n: "same")

    assert len(set(ids)) == 3
    assert IDS_TRIED_MAX > 1


def test_ids_of_a_conversation_are_found():
    """Calls and results both say which ids are taken; odd messages are passed over."""
    messages = [
        {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": 3}, "x"]},
        {"role": "tool", "tool_call_id": "b"},
        {"role": "user", "tool_calls": None},
    ]

    assert ids_in(messages) == {"a", "b"}


def test_the_corrective_message_says_everything():
    """The user's wording, every violation with its place, the guess at the name, and the tools with their
    signatures."""
    bad = [RawCall(name="serch", arguments="{}"), RawCall(name="search", arguments='{"limit": "x"}')]

    message = corrective_message(check_calls(bad, BOX, new_id=IDS).violations, BOX)

    assert message.startswith(
        "Your previous response contained an invalid tool call. The error was: /0/name there is no"
    )
    assert "did you mean 'search'?" in message
    assert "/1/arguments/query (in search) is required" in message
    assert "/1/arguments/limit (in search) must be integer or null" in message
    assert "You must respond with valid JSON matching the tool schema exactly. Available tools: search(" in message
    assert message.endswith("search(query: string, limit?: integer|null, mode?: 'a'|'b', free?: any), clock().")
    assert "Available tools: none." in corrective_message([], made([]))


@pytest.mark.parametrize(
    ("strategy", "can", "rungs"),
    [
        (
            RETRY_STRATEGY,
            True,
            [("correct", False), ("resample", True), ("constrain", True), ("constrain", True)],
        ),
        (RETRY_STRATEGY, False, [("correct", False), ("resample", False), ("resample", False)]),
        ((Rung.RESAMPLE, Rung.CORRECT), True, [("resample", False), ("correct", False), ("correct", False)]),
        ((Rung.CONSTRAIN,), True, [("constrain", True), ("constrain", True)]),
        ((Rung.CONSTRAIN,), False, [("correct", False), ("correct", False)]),
        ((), True, [("correct", False)]),
    ],
)
def test_the_ladder(strategy, can, rungs):
    """One rung per re-ask, the last one repeated; a grammar from the second on, where the tier and its
    strategy have one."""
    found = [next_reask(strategy, n, can_constrain=can) for n in range(len(rungs))]

    assert [(reask.rung.value, reask.constrained) for reask in found] == rungs
