"""Histories that fit: what is left out is old and a tool's, and stays left out."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability import context_edits
from reliability.answer.estimate import prompt_bytes
from reliability.context_edits import NO_ARGUMENTS, STUB, ClearResults, ClearThoughts, apply_edits, clear_results
from reliability.types import ChatRequest
from tests.support.conversation import told, user

TURNS = st.lists(st.tuples(st.lists(st.integers(0, 600), max_size=3), st.booleans()), min_size=1, max_size=12)
RULES = st.builds(
    ClearResults,
    bytes_over=st.integers(500, 3000) | st.none(),
    uses_over=st.integers(0, 6) | st.none(),
    bytes_left=st.integers(0, 1500),
    bytes_least=st.integers(0, 600),
    keep=st.integers(0, 4),
    spared=st.sampled_from([frozenset(), frozenset("b")]),
    inputs=st.sampled_from([frozenset(), frozenset("a"), None]),
    unread=st.booleans(),
)


def grow(turns: list[tuple[list[int], bool]]) -> list[dict[str, Any]]:
    """A conversation of these turns: how long the results of a turn's calls are, and whether the user speaks behind."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "sys"}, {"role": "user", "content": "go"}]
    for at, (sizes, speaks) in enumerate(turns):
        names = [f"c{at}_{n}" for n in range(len(sizes))]
        calls = [{"id": name, "function": {"name": "ab"[n % 2], "arguments": "x" * 40}} for n, name in enumerate(names)]
        said = {"role": "assistant", "content": f"step {at}", "reasoning_content": f"thought {at}"}
        messages.append(said | {"tool_calls": calls} if calls else said)
        messages += [told("y" * size, name) for name, size in zip(names, sizes, strict=True)]
        messages += [user(f"and {at}")] if speaks else []
    return messages


def moments(messages: list[dict[str, Any]]) -> list[int]:
    """The lengths that a history had when its prompts were sent."""
    return [*(at for at, message in enumerate(messages) if message["role"] == "assistant"), len(messages)]


def stubs(messages: Any) -> set[int]:
    return {at for at, message in enumerate(messages) if message["content"] == STUB}


@given(TURNS, RULES)
def test_only_old_results_are_cleared(turns, rule):
    """Every message keeps its place, its role and its call's name and id; the words of the user, the system and the
    answers stay to the letter; the newest results stay, and those of spared tools; the figures are what is missing."""
    messages = grow(turns)
    cleared = clear_results(messages, rule, 100)
    results = [at for at, message in enumerate(messages) if message["role"] == "tool"]
    gone = stubs(cleared.messages)

    assert len(gone) == cleared.count
    assert not gone & set(results[len(results) - rule.keep :] if rule.keep else ())
    assert rule.unread or not gone & set(range(moments(messages)[-2], len(messages)))
    assert prompt_bytes(messages) - prompt_bytes(cleared.messages) == cleared.size
    for at, (before, after) in enumerate(zip(messages, cleared.messages, strict=True)):
        if before["role"] == "tool":
            assert after == before or at in gone
            assert before["tool_call_id"] == after["tool_call_id"]
            assert at not in gone or not (rule.spared and before["tool_call_id"].endswith("_1"))
        else:
            assert {**after, "tool_calls": None} == {**before, "tool_calls": None}
            for one, other in zip(before.get("tool_calls", ()), after.get("tool_calls", ()), strict=True):
                assert (one["id"], one["function"]["name"]) == (other["id"], other["function"]["name"])


@given(TURNS, RULES)
def test_what_is_cleared_stays_cleared(turns, rule):
    """Each turn clears what the turn before has cleared, and more only where the prompt was over the size again: the
    prompt of a turn begins with the whole prompt of the turn before, but for the steps."""
    messages = grow(turns)
    before: set[int] = set()
    for end in moments(messages):
        cleared = clear_results(messages[:end], rule, 100)
        gone = stubs(cleared.messages)
        assert before <= gone
        if gone != before:
            assert cleared.size >= rule.bytes_least
            assert rule.uses_over is not None or 100 + prompt_bytes(messages[:end]) > (rule.bytes_over or 0)
        before = gone


@given(st.integers(1, 25))
def test_the_prefix_is_lost_once_a_step(count):
    """A session of equal turns whose prompt is cut to half where it is over the size loses its prefix about once for
    each half of the size that it grows by, and not once a turn."""
    rule = ClearResults(bytes_over=4000, bytes_left=2000, keep=1)
    messages = grow([([400], False)] * count)
    seen = [len(stubs(clear_results(messages[:end], rule).messages)) for end in moments(messages)]
    steps = sum(later != earlier for earlier, later in pairwise(seen))

    assert steps <= prompt_bytes(messages) / 1000
    assert prompt_bytes(clear_results(messages, rule).messages) <= 4000


@pytest.mark.parametrize(("unread", "left"), [(False, 5), (True, 3)])
def test_a_model_reads_a_result_before_it_is_cleared(unread, left):
    """Of more results at once than are to stay, all stay until an answer stands behind them, and no longer."""
    rule = ClearResults(uses_over=4, keep=3, unread=unread)
    asked = grow([([600], False)] * 4 + [([600] * 5, False)])
    answered = [*asked, {"role": "assistant", "content": "I read them."}, {"role": "user", "content": "And?"}]

    assert [clear_results(messages, rule).count for messages in (asked, answered)] == [9 - left, 6]


SHOT = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def show(count: int, words: str, *shots: Any) -> list[dict[str, Any]]:
    """So many turns, each with a screenshot behind its result, and what the user says beside it."""
    messages = grow([([2], False)] * count)
    shown = [user([*shots, *([{"type": "text", "text": words}] if words else [])])]
    return [one for message in messages for one in (message, *(shown if message["role"] == "tool" else []))]


@given(
    st.integers(1, 6),
    st.integers(0, 3),
    st.integers(1, 3),
    st.sampled_from(["", "<system-reminder>x</system-reminder>"]),
)
def test_what_a_result_has_shown_goes_with_it(count, keep, shots, reminder):
    """The images that stand behind a cleared result, without a word of the user's, and no others; the figures are what
    is missing."""
    messages = show(count, reminder, *[SHOT] * shots)
    cleared = clear_results(messages, ClearResults(bytes_over=1, keep=keep, unread=True))
    left = [message for message in cleared.messages if SHOT in list(message["content"])]

    assert cleared.count == max(0, count - keep)
    assert len(left) == min(count, keep)
    assert all(message in messages for message in left)
    assert prompt_bytes(messages) - prompt_bytes(cleared.messages) == cleared.size


def test_what_a_user_asks_about_stays():
    """Also behind a result."""
    messages = show(3, "What is this?", SHOT)

    assert clear_results(messages, ClearResults(bytes_over=1, keep=0, unread=True)).count == 0


def test_a_call_loses_its_arguments_with_its_result():
    """Of the named tools, or of all; never while its result stands."""
    messages = grow([([600, 600], False), ([600], False)])
    for inputs, emptied in ((frozenset(), 0), (frozenset("a"), 1), (None, 2)):
        cleared = clear_results(messages, ClearResults(uses_over=1, keep=1, inputs=inputs)).messages
        arguments = [call["function"]["arguments"] for m in cleared for call in m.get("tool_calls", ())]
        assert arguments.count(NO_ARGUMENTS) == emptied
        assert arguments[-1] == "x" * 40


@given(TURNS, st.integers(1, 4))
def test_old_thoughts_are_cleared_by_turns(turns, keep):
    """Thoughts of the newest turns stay; a turn ends where the user speaks, and not behind a result; nothing else is
    changed."""
    messages = grow(turns)
    cleared = context_edits._clear_thoughts(messages, ClearThoughts(keep=keep))
    groups: list[list[int]] = [[]]
    for at, message in enumerate(messages):
        if message["role"] == "user" and at and messages[at - 1]["role"] != "tool":
            groups.append([])
        if message["role"] == "assistant":
            groups[-1].append(at)
    groups = [group for group in groups if group]
    kept = {at for group in groups[-keep:] for at in group}

    assert cleared.count == max(0, len(groups) - keep)
    for at, (before, after) in enumerate(zip(messages, cleared.messages, strict=True)):
        expected = dict(before)
        if at not in kept:
            expected.pop("reasoning_content", None)
        assert after == expected


def test_edits_are_applied_in_their_order():
    """To the request of which nothing else is changed; without an effect it stays the very same."""
    messages = tuple(grow([([600], True), ([600], True), ([10], False)]))
    request = ChatRequest(request_id="r", session_id="s", messages=messages, max_tokens=9, timeout_s=9.0)
    edits = (ClearThoughts(keep=1), ClearResults(uses_over=1, keep=1))
    edited, done = apply_edits(request, edits)

    assert [cleared.count for cleared in done] == [0, 2]
    assert len(stubs(edited.messages)) == 2
    assert apply_edits(request, (ClearResults(bytes_over=10**6),))[0] is request


@pytest.mark.parametrize("keep", [0, 3])
def test_a_long_history_is_walked_once(keep):
    """Ten thousand results that are never worth clearing cost a walk, and not one for each of them."""
    messages = grow([([20], False)] * 10_000)
    cleared = clear_results(messages, ClearResults(uses_over=0, bytes_least=10**9, keep=keep))

    assert cleared.count == 0
