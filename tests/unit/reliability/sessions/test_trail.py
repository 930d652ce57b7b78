"""The trail: the same however a client spells what it was answered, and as cheap for a long history as for a short."""

import gc
import json
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops.transcript import answer_turn
from reliability.sessions import describe_answer, read_trail
from reliability.sessions.trail import _ANSWERS_MAX, name_request

CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a", "limit": 2}'}}
ANSWER = {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}
TEXT = {"role": "assistant", "content": "<think>Hm.</think>\nThe file has two lines,\n and both are empty.\n"}
HEAD: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "Read it."}]


def call_as(**changed: Any) -> dict[str, Any]:
    function = {**CALL["function"], **changed}
    return {**ANSWER, "tool_calls": [{**CALL, "function": function}]}


SPELLINGS = [
    (ANSWER, {**ANSWER, "content": None}), (ANSWER, {**ANSWER, "content": ""}),
    (ANSWER, {**ANSWER, "reasoning_content": "Let me see."}), (ANSWER, call_as(arguments='{"limit":2,"path":"a"}')),
    (ANSWER, call_as(arguments=json.dumps({"path": "a", "limit": 2.0}, indent=2))),
    (ANSWER, call_as(arguments='{"path": "a", "limit": 2, "request": "read"}')),
    (TEXT, {**TEXT, "content": "The file has two lines, and both are empty."}),
    (TEXT, {**TEXT, "content": [{"type": "text", "text": "The file has two lines,\n and both are empty."}]}),
]  # fmt: skip


@pytest.mark.parametrize(("left", "came"), SPELLINGS)
def test_an_answer_is_known_however_it_is_spelled(left, came):
    """What a client strips, drops or writes anew changes no digest of the answer."""
    answered = describe_answer(answer_turn(left), ["call_1"])
    ((_, seen),) = read_trail([*HEAD, came]).seen
    assert (seen.words, seen.calls if left is ANSWER else ()) == (answered.words, answered.calls)


@pytest.mark.parametrize("other", [
    call_as(arguments='{"path": "b", "limit": 2}'), call_as(name="write"), {**ANSWER, "tool_calls": [CALL, CALL]},
    {"role": "assistant", "content": "I look."},
])  # fmt: skip
def test_another_answer_is_another(other):
    """Other arguments, another tool, another call beside it, or none: another answer."""
    assert read_trail([*HEAD, other]).seen[0][1].words != describe_answer(answer_turn(ANSWER)).words


def test_a_call_is_known_by_its_id_and_by_what_it_calls():
    """Weak servers give the same ids again and again: an id proves something of its own call only."""
    _, seen = read_trail([*HEAD, call_as(name="write")]).seen[0]
    assert seen.calls != describe_answer(answer_turn(ANSWER), ["call_1"]).calls
    assert read_trail([*HEAD, ANSWER]).seen[0][1].calls != describe_answer(answer_turn(ANSWER), ["call_2"]).calls


def test_the_system_prompt_is_no_part_of_the_conversation():
    """A date in it changes its own digest and no other."""
    a, b = (read_trail([{"role": "system", "content": f"Day {n}"}, *HEAD[1:], ANSWER]) for n in range(2))
    assert a.system != b.system
    assert (a.seen, a.start, a.opening, a.place) == (b.seen, b.start, b.opening, b.place)


def test_two_owners_never_meet():
    """The same words under another credential are another's."""
    assert read_trail(HEAD, "a").owner != read_trail(HEAD, "b").owner


def test_only_the_end_of_a_history_is_read():
    """Of a long history the newest answers count, and no more."""
    turns = [{"role": "assistant", "content": f"Answer number {n}."} for n in range(50)]
    trail = read_trail([*HEAD, *turns])
    assert len(trail.seen) == _ANSWERS_MAX
    assert trail.seen == read_trail([*HEAD, *turns[25:]]).seen


def test_a_request_has_its_own_name():
    """Any change at either end, and another length, is another request; the same one has the same name."""
    long = [*HEAD, *({"role": "user", "content": f"m{n}"} for n in range(40))]
    assert name_request(long) == name_request([dict(message) for message in long])
    assert len({name_request(each) for each in (long, long[:-1], long[1:], [*long, HEAD[1]])}) == 4


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["role", "content", "tool_calls", "name", "function_call"]),
            st.recursive(
                st.none() | st.integers() | st.text(max_size=9) | st.sampled_from(["user", "assistant", "tool"]),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
                max_leaves=5,
            ),
        ),
        max_size=6,
    )
)
def test_any_messages_have_a_trail(messages):
    """Total: whatever the messages hold, there is a trail, and the same one each time."""
    assert read_trail(messages) == read_trail(messages)


GOT_IT = {"role": "assistant", "content": "Got it."}


@pytest.mark.parametrize("before", ["", f"<system-reminder>\n{'Be brief. ' * 1_000}\n</system-reminder>\n"])
@pytest.mark.parametrize(
    "behind", [[], [GOT_IT], [ANSWER], [GOT_IT, HEAD[1]], [GOT_IT, ANSWER], [GOT_IT, HEAD[1], GOT_IT, HEAD[1]]]
)
def test_a_summary_is_known_that_its_client_acknowledges(before, behind):
    """Words in the assistant's name behind a summary leave it one, also before the next request, and where reminders
    stand before it; a call behind it is an answer to it, and so are words behind that request."""
    summary = {"role": "user", "content": f"{before}<state_snapshot>\nTwo files were read.\n</state_snapshot>"}
    folded = ANSWER not in behind and behind.count(HEAD[1]) < 2
    assert read_trail([HEAD[0], summary, *behind]).folded is folded


class Held(dict[str, Any]):
    """A message that tells whether it is still in memory."""


def test_a_request_is_freed_when_it_ends():
    """Law: no message outlives what was read from it, whenever Python's collector comes: with few objects and much text
    that may be hundreds of requests later."""
    messages = [Held(message) for message in (*HEAD, ANSWER, TEXT, HEAD[1])]
    held = [weakref.ref(message) for message in messages]
    gc.disable()
    try:
        trail = read_trail(messages)
        del messages
        assert not any(one() for one in held)
    finally:
        gc.enable()
    assert trail.seen
