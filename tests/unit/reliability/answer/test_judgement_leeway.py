"""Refused answers that may be right all the same, and what of them may leave."""

import pytest

from reliability.types import CallDelta, Finish, FinishReason, Flaw, Reasoning, Text
from tests.support.judgements import GOOD, native, ruled

CALLED = Finish(reason=FinishReason.TOOL_CALLS)
STRANGE = '{"name": "resize", "arguments": {"width": 10}}'


@pytest.mark.parametrize("tail", ["", " and more"])
def test_doubted_calls_may_leave_as_they_are(tail):
    """Law: where all that is said against calls is that a value may not be meant, they are what may leave, with the
    text; what is suspected is told from what is plain."""
    for given, suspected in (('{"q": ""}', True), ('{"q": "your_song.txt"}', True), ('{"q": "<your song>"}', False)):
        judged = ruled([Text(f"Well{tail}."), native(given)], CALLED)
        assert judged.flaw is Flaw.TOOL_CALL_INVALID
        assert judged.leeway.suspected is suspected
        assert judged.finish.reason is FinishReason.TOOL_CALLS
        assert [event.arguments for event in judged.events if isinstance(event, CallDelta)] == [given]
        assert [event.text for event in judged.events if isinstance(event, Text)] == [f"Well{tail}."]


def test_the_same_doubt_is_known_again():
    """Law: the same value in the same place is the same doubt, whatever else is said; another value isn't."""
    one, same, other = (
        ruled([Text(text), native(given)], CALLED).leeway
        for text, given in (("A.", '{"q": "your_a"}'), ("B.", '{"q": "your_a", "n": 1}'), ("A.", '{"q": "your_b"}'))
    )
    assert one == same != other


@pytest.mark.parametrize("given", ['{"q": 3}', "{}", '{"q": "<your q>"}', '{"q": "x"', "[]"])
def test_a_call_that_is_wrong_has_no_leeway(given):
    """Law: what the schema refuses, or can't be read, never leaves, also beside a doubted call."""
    for calls in ([native(given)], [native('{"q": ""}'), native(given, index=1)]):
        judged = ruled(calls, CALLED)
        assert (judged.flaw, judged.leeway, judged.calls) == (Flaw.TOOL_CALL_INVALID, None, ())


def test_an_undeclared_call_in_the_open_may_leave_as_words():
    """Law: JSON in the open that names no declared tool may leave as it was written, without its reasoning."""
    for text in (STRANGE, f"```json\n{STRANGE}\n```", f"[{STRANGE}]"):
        judged = ruled([Text("<think>Hm.</think>" + text)])
        assert (judged.flaw, judged.leeway.suspected) == (Flaw.TOOL_CALL_INVALID, False)
        assert judged.events == (Reasoning("Hm."), Text(text))
        assert judged.finish.reason is FinishReason.STOP


def test_words_need_the_whole_answer():
    """Law: under a mark, where a call is required or beside a call, an undeclared one is no words."""
    marked = ruled([Text(f"<tool_call>{STRANGE}</tool_call>")])
    required = ruled([Text(STRANGE)], tool_choice="required")
    beside = ruled([Text(STRANGE), native("{}")], CALLED)
    assert [one.leeway for one in (marked, required, beside)] == [None] * 3
    assert {one.flaw for one in (marked, required, beside)} == {Flaw.TOOL_CALL_INVALID}


def test_a_doubted_call_is_held_against_the_history():
    """Law: a call that repeats itself is a loop, though its value is doubted, and known as the answer's turn."""
    call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"q": ""}'}}
    lap = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "none"}]
    fresh, looped = (
        ruled([native('{"q": ""}')], CALLED, messages=[{"role": "user", "content": "find cats"}, *lap * laps])
        for laps in (0, 8)
    )
    assert (fresh.flaw, fresh.loop, fresh.turn is None) == (Flaw.TOOL_CALL_INVALID, None, False)
    assert (looped.flaw, looped.leeway) == (Flaw.CIRCUIT_BREAK, None)


@pytest.mark.parametrize(
    "words", ['For example:\n{"name": "search", "arguments": {"q": "a"}}', 'Calling search with {"q": "a"}']
)
def test_what_is_only_asked_about_is_text_beside_a_native_call(words):
    """Law: an example, or a call told in words, next to a call that came as one is text, as any other call is."""
    for given in (GOOD, '{"q": "a"}'):
        judged = ruled([Text(words), native(given)], CALLED)
        assert (judged.flaw, [call.arguments for call in judged.calls]) == (None, [given])
        assert [event.text for event in judged.events if isinstance(event, Text)] == [words]
