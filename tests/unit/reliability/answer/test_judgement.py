"""The judgement on whole answers."""

import json
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.answer.gate import TextKind
from reliability.answer.judgement import Judged, settle_text
from reliability.answer.wanted_form import read_wanted_form
from reliability.steps import Steps
from reliability.types import CallDelta, Event, Finish, FinishReason, Flaw, Reasoning, Refusal, Text
from tests.support.judgements import BOX, GOOD, lapped, native, ruled
from tests.support.value_paths import judge_events


def test_a_call_written_as_text_leaves_as_a_call():
    """The client gets one whole call, a finish reason that says so, and no markup."""
    judged = ruled([Text(f'```json\n{{"name": "search", "arguments": {GOOD}}}\n```')])
    assert judged.flaw is None
    assert judged.finish.reason is FinishReason.TOOL_CALLS
    (delta,) = judged.events
    assert (delta.name, json.loads(delta.arguments)) == ("search", {"q": "cats"})
    assert delta.id


NAMED = {"type": "function", "function": {"name": "search"}}


@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize(
    "text", [GOOD, f"Here it is:\n```json\n{GOOD}\n```", "{'q': 'cats',}", f"<think>So.</think>{GOOD}"]
)
def test_the_arguments_of_the_one_tool_that_must_be_called_are_its_call(text, choice):
    """The name is the request's: nothing is guessed. That no call stood around them is told as a repair."""
    judged = ruled([Text(text)], tool_choice=choice)

    assert (judged.flaw, judged.finish.reason) == (None, FinishReason.TOOL_CALLS)
    assert [json.loads(call.arguments) for call in judged.calls] == [{"q": "cats"}]
    assert not any(isinstance(event, Text) for event in judged.events)
    assert "envelope" in [repair.kind for repair in judged.repairs]


@pytest.mark.parametrize(("text", "keys"), [
    (GOOD, {}), (GOOD, {"tool_choice": "auto"}), (GOOD, {"tool_choice": "required", "sent": "I "}),
    ('{"q": "cats", "n": 1}', {"tool_choice": "required"}), ('{"n": 1}', {"tool_choice": "required"}),
    ("{}", {"tool_choice": "required"}), (f"{GOOD} {GOOD}", {"tool_choice": "required"}),
    (GOOD, {"tool_choice": "required", "finish": Finish(reason=FinishReason.LENGTH)}),
])  # fmt: skip
def test_what_may_be_other_json_is_no_call(text, keys):
    """A choice that is the model's, text that has left, other keys, two objects, or an answer that was cut."""
    assert ruled([Text(text)], **keys).calls == ()


@pytest.mark.parametrize(("held", "count"), [
    ([native(GOOD)], 1), ([Text(f'{{"name": "search", "arguments": {GOOD}}}')], 0),
    ([Text(f'<tool_call>{{"name": "search", "arguments": {GOOD}}}</tool_call>'), native(GOOD)], 1),
    ([native(GOOD), native('{"q": "dogs"}', index=1)], 2), ([native("{")], 1), ([Text("No.")], 0),
])  # fmt: skip
def test_calls_that_came_as_calls_are_counted(held, count):
    """Those that were found in the text aren't; whether they are good is another question."""
    assert ruled(held).native_calls == count


@pytest.mark.parametrize(
    ("held", "finish", "flaw"),
    [
        ([native("{")], FinishReason.TOOL_CALLS, Flaw.TOOL_CALL_INVALID),
        ([native("{}")], FinishReason.TOOL_CALLS, Flaw.TOOL_CALL_INVALID),
        ([native(GOOD, name="serch_web")], FinishReason.TOOL_CALLS, Flaw.TOOL_CALL_INVALID),
        ([native(GOOD), native("{", index=1)], FinishReason.TOOL_CALLS, Flaw.TOOL_CALL_INVALID),
        ([Text('<tool_call>{"name": "search", "argu')], FinishReason.LENGTH, Flaw.TRUNCATED),
        ([native('{"q": "ca')], FinishReason.LENGTH, Flaw.TRUNCATED),
        ([Text('[search(q="cats")')], FinishReason.LENGTH, Flaw.TRUNCATED),
        ([], FinishReason.STOP, Flaw.EMPTY),
        ([Text(" \n")], FinishReason.STOP, Flaw.EMPTY),
        ([Text("I will search.")], FinishReason.TOOL_CALLS, Flaw.EMPTY),
    ],
)
def test_what_is_not_good_enough(held, finish, flaw):
    """Each bad answer has its flaw; none of its calls would be delivered, not even the good one of two."""
    judged = ruled(held, Finish(reason=finish))
    assert judged.flaw is flaw
    assert judged.detail
    assert not any(isinstance(event, CallDelta) for event in judged.events)


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CONTENT_FILTER])
def test_an_empty_answer_that_was_stopped_is_what_it_is(reason):
    """A refusal or a spent limit is an answer; asking again would only hear it again."""
    assert ruled([], Finish(reason=reason)).flaw is None


def test_text_that_has_left_stands_alone():
    """After an earlier attempt's text only calls are taken; an attempt without one is asked again."""
    with_call = ruled([Text("again "), native(GOOD)], committed=True)
    without = ruled([Text("again")], committed=True)
    assert [type(event) for event in with_call.events] == [CallDelta]
    assert without.flaw is Flaw.EMPTY


def test_identical_calls_of_one_answer_are_one():
    """A call that is said five times is obeyed once, and that is shown; different calls all stay."""
    same = ruled([native(GOOD, index=i) for i in range(5)])
    different = ruled([native(json.dumps({"q": str(i)}), index=i) for i in range(5)])
    assert ([call.id for call in same.calls], same.dropped_calls, same.flaw) == (["c0"], 4, None)
    assert (len(different.calls), different.dropped_calls) == (5, 0)


@pytest.mark.parametrize("allowed", [False, True, None])
@given(st.lists(st.sampled_from(["cats", "dogs", "birds"]), min_size=1, max_size=4, unique=True), st.booleans())
def test_who_takes_one_call_at_a_time_gets_the_first(allowed, words, as_text):
    """Law: of several good calls a client that forbids parallel ones gets the first, and is told of the others; who
    doesn't forbid them gets all."""
    arguments = [json.dumps({"q": word}) for word in words]
    held = [native(text, index=i) for i, text in enumerate(arguments)]
    if as_text:
        form = '<tool_call>{{"name": "search", "arguments": {}}}</tool_call>'
        held = [Text("".join(map(form.format, arguments)))]
    judged = ruled(held, parallel_tool_calls=allowed)
    left = 1 if allowed is False else len(words)
    assert [call.arguments for call in judged.calls] == arguments[:left]
    assert (judged.dropped_calls, judged.flaw) == (len(words) - left, None)


@pytest.mark.parametrize(("laps", "flaw"), [(1, None), (2, Flaw.LOOP), (3, Flaw.LOOP), (4, Flaw.CIRCUIT_BREAK)])
def test_the_answer_about_to_leave_is_the_newest_lap(laps, flaw):
    """Two equal laps in the history and a third about to leave: nudge. Four and a fifth: break."""
    judged = ruled([native(GOOD)], messages=lapped(laps))
    assert judged.flaw is flaw
    assert judged.calls
    if flaw is not None:
        assert f"({laps + 1}x)" in judged.detail
    assert ruled([native('{"q": "dogs"}')], messages=lapped(laps)).flaw is None


def test_switched_off_checks_pass_calls_as_they_came():
    """Without `tool_validation` nothing is judged or repaired; without `loop_detection` nothing loops."""
    assert ruled([native("{", name="nobody")], Finish(reason=FinishReason.TOOL_CALLS), checks=None).flaw is None
    assert ruled([native(GOOD)], messages=lapped(9), loops=None).flaw is None


@pytest.mark.parametrize(("text", "kind"), [
    ('{"name": "search", "arguments": {}}', TextKind.CALL), ('{"name": "Bob", "age": 3}', TextKind.PROSE),
    ("<tool_call>{", TextKind.CALL), ("⏺ sea", TextKind.OPEN),
])  # fmt: skip
def test_what_a_candidate_is(text, kind):
    """A call, an attempt at one, prose, or too short to tell."""
    assert settle_text(text, "", BOX) is kind


def test_thinking_is_no_answer():
    """Held reasoning leaves as reasoning, and alone it is an empty answer."""
    judged = ruled([Reasoning("hm")])
    assert judged.events == (Reasoning("hm"),)
    assert judged.flaw is Flaw.EMPTY


@given(
    st.sampled_from(["auto", "required", {"type": "function", "function": {"name": "search"}}]),
    st.sampled_from([FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.CONTENT_FILTER]),
    st.booleans(),
    st.sampled_from(["", "Well. "]),
)
def test_a_refusal_is_a_complete_answer(choice, reason, committed, sent):
    """Law: without a call it is delivered as it is, whatever was asked for and whatever has left: neither empty, nor
    invalid, nor the next lap of a loop."""
    held: list[Event] = [Refusal("I can't "), Refusal("help.")]
    finish = Finish(reason=reason)
    judged = ruled(held, finish, sent=sent, committed=committed, messages=lapped(6), tool_choice=choice)
    assert (judged.flaw, judged.violations, judged.loop) == (None, (), None)
    assert judged.events == (Refusal("I can't help."),)
    assert judged.finish.reason is not FinishReason.TOOL_CALLS


def test_calls_beside_a_refusal_are_judged_as_ever():
    """Law: a bad call isn't delivered because words of refusal stand next to it."""
    assert ruled([Refusal("No."), native("{")]).flaw is Flaw.TOOL_CALL_INVALID
    assert [type(event) for event in ruled([Refusal("No."), native(GOOD)]).events] == [Refusal, CallDelta]


def test_calls_behind_the_turn_are_noted():
    """What is dropped of an answer that goes on behind its own turn stands in the report."""
    call = f'<tool_call>{{"name": "search", "arguments": {GOOD}}}</tool_call>'
    judged = ruled([Text(f"{call}<tool_response>21</tool_response>{call.replace('cats', 'dogs')}")])
    assert [json.loads(one.arguments) for one in judged.calls] == [{"q": "cats"}]
    assert "1 tool call" in judged.finish.notes[-1]


@pytest.mark.parametrize("query", ["Example Product", "exampleRequestId", "q"])
def test_without_a_conversation_words_are_no_placeholders(query):
    """Where nothing was said, no value is told from what was said."""
    assert ruled([native(json.dumps({"q": query}))], messages=[]).calls


@pytest.mark.parametrize(
    "keys", [{"tool_choice": "none"}, {"form": read_wanted_form({"type": "json_object"}, Steps(1_000))}]
)
def test_json_that_was_asked_for_is_the_answer(keys):
    """With calls forbidden, or JSON asked for, a name without arguments is data, be it a tool's."""
    text = '{"name": "search"}'
    assert ruled([Text(text)], **keys).events == (Text(text),)


NATIVE = "<call>"
FENCED_PARTS = ("```json", "```", "~~~", "\n", " ", "Sure:", "x = 1", "`", "js", "<b>", "{", NATIVE)


def read_parts(parts: list[str], pieces: Callable[[str], Iterable[str]]) -> tuple[str, Judged]:
    """Read an answer with calls that the tier has found itself; return its text and judgement."""
    events: list[list[Event]] = []
    for at, part in enumerate(parts):
        call = CallDelta(index=parts[:at].count(NATIVE), id=f"c{at}", name="search", arguments=GOOD)
        events += [[call]] if part == NATIVE else [[Text(piece)] for piece in pieces(part)]
    out, judged = judge_events(events, BOX)
    return "".join(event.text for event in out if isinstance(event, Text)), judged


@pytest.mark.parametrize(
    ("parts", "left"),
    [
        (["```json\n", NATIVE, "\n```"], ""),
        (["```json\n", NATIVE], ""),
        (["Sure:\n```json\n", NATIVE, "\n```\nDone."], "Sure:\n\nDone."),
        (["```json\n", NATIVE, "\nx = 1\n```"], "```json\n\nx = 1\n```"),
        (["```py\nx = 1\n```\n", NATIVE, "\n```\ny\n```"], "```py\nx = 1\n```\n\n```\ny\n```"),
    ],
)
def test_of_a_block_of_calls_nothing_is_left(parts, left):
    """Law: the code block that a model has put its calls in is none of its words; any other block stays."""
    assert read_parts(parts, list)[0] == read_parts(parts, lambda part: [part])[0] == left


@pytest.mark.parametrize("text", ["````md\n```\nx\n```\n````\n", "`````md\n````py\n```\n````\n`````\n"])
def test_a_longer_fence_holds_a_shorter_one_as_its_text(text):
    """Law: a block of Markdown that shows blocks is no empty one: of a whole answer it leaves as it stands."""
    events = ruled([Text(text), native(GOOD)]).events

    assert [event.text for event in events if isinstance(event, Text)] == [text]


@pytest.mark.parametrize(
    "call", [native(GOOD), Text(f'\n<tool_call>{{"name": "search", "arguments": {GOOD}}}</tool_call>')]
)
@pytest.mark.parametrize("text", ["I'll run ```ls``` first.", "It is ```README.md```.", "```x ``` and ```y ```"])
def test_code_in_three_backticks_is_no_empty_block(text, call):
    """Law: what stands between backticks in a line is a part of the sentence, beside a call too."""
    events = ruled([Text(text), call]).events

    assert "".join(event.text for event in events if isinstance(event, Text)).rstrip() == text


@given(st.lists(st.sampled_from(FENCED_PARTS), max_size=10))
def test_calls_in_blocks_read_the_same_in_any_pieces(parts):
    """Law: text and calls around the fences of code blocks don't depend on how they were cut."""
    (text, judged), (other, again) = read_parts(parts, list), read_parts(parts, lambda part: [part])
    assert (text, judged.calls, judged.flaw) == (other, again.calls, again.flaw)


@pytest.mark.parametrize(
    "call", [native(GOOD), Text(f'<tool_call>{{"name": "search", "arguments": {GOOD}}}</tool_call>')]
)
def test_an_empty_block_before_the_call_is_the_answers(call):
    """Law: a block that has ended before the first call held no call: whole and streamed it stays as it stands."""
    events = ruled([Text("Ok.\n```json\n```\n"), call]).events

    assert "".join(event.text for event in events if isinstance(event, Text)) == "Ok.\n```json\n```\n"
