"""Answers that bring their calls as calls, and something of the same calls in their text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.tools import RepairKind
from reliability.types import CallDelta, Finish, FinishReason, Flaw, Text
from tests.support.judgements import GOOD, native, ruled

CALLED = Finish(reason=FinishReason.TOOL_CALLS)
MARKS = ["<tool_call>", "</tool_call>", "<|tool_call|>", "[TOOL_REQUEST]", "[END_TOOL_REQUEST]", "<function_calls>"]
BLANKS = ["\n", " ", ""]
leaks = st.lists(st.sampled_from([*MARKS, *BLANKS]), min_size=1, max_size=8).map("".join)
queries = st.lists(st.sampled_from("abc"), max_size=4)


def written(query: str) -> str:
    return f'<tool_call>\n{{"name": "search", "arguments": {{"q": "{query}"}}}}\n</tool_call>\n'


def asked(judged) -> list[str]:
    return sorted(json.loads(call.arguments)["q"] for call in judged.calls)


@given(leak=leaks, after=st.booleans())
def test_marks_around_nothing_refuse_no_native_call(leak, after):
    """Marks that an upstream left in the text of the calls that it took out: the calls leave to the letter, the marks
    don't, and that is on record."""
    call = native(GOOD)
    judged = ruled([call, Text(leak)] if after else [Text(leak), call], CALLED)

    assert judged.flaw is None
    assert judged.events == (call,)
    if leak.strip():
        assert [repair.kind for repair in judged.repairs] == [RepairKind.ENVELOPE]


@given(queries, queries.filter(bool))
def test_a_call_is_delivered_once_however_often_it_is_told(in_text, as_calls):
    """What stands in the text and came as a call too is one call, and so is what one of the two says again; but for a
    pair of native calls, which may be meant."""
    held = [
        *(Text(written(query)) for query in in_text),
        *(CallDelta(index=i, id=f"c{i}", name="search", arguments=f'{{"q":"{q}"}}') for i, q in enumerate(as_calls)),
    ]
    judged = ruled(held, CALLED)

    assert judged.flaw is None
    pairs = [query for query in set(as_calls) if as_calls.count(query) == 2]
    assert asked(judged) == sorted([*{*in_text, *as_calls}, *pairs])
    assert {call.arguments for call in judged.calls} >= {f'{{"q":"{query}"}}' for query in as_calls}
    assert bool(judged.repairs) == bool(set(in_text) & set(as_calls))


def test_a_copy_may_name_its_tool_in_another_way():
    """Names that mean one tool make one call."""
    judged = ruled([Text(written("cats").replace("search", "functions.search")), native(GOOD)], CALLED)

    assert [call.id for call in judged.calls] == ["c0"]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "search", "arguments": {"q": "do',
        "<tool_call>\nsearch dogs\n</tool_call>",
        "search dogs </tool_call>",
        "<tool_call>\n</tool_call>\n<tool_call>{]</tool_call>",
    ],
)
def test_a_call_with_something_in_it_is_still_a_violation(text):
    """No call of several is dropped: what can't be read refuses the native one too."""
    judged = ruled([Text(text), native(GOOD)], CALLED)

    assert judged.flaw is Flaw.TOOL_CALL_INVALID
    assert judged.calls == ()


@given(leak=leaks.filter(str.strip))
def test_marks_alone_are_no_answer(leak):
    """Without a native call the marks are all that is left of one: it is asked for again."""
    assert ruled([Text(leak)]).flaw in (Flaw.TOOL_CALL_INVALID, Flaw.EMPTY)
