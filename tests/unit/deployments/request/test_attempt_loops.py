"""An answer that is stopped while it decodes: what stands of it, and that it never ends as if it were whole."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.request.attempt import record_attempt
from reliability.answer.judgement import expect
from reliability.faults import TRAITS, Again
from reliability.loops import LoopConfig, Turn
from reliability.tools import CheckConfig, build_toolbox
from reliability.types import CallDelta, Event, Finish, FinishReason, Flaw, Hold, Reasoning, Started, Text
from tests.support.readings import MESSAGES, TOOLS, Reading, open_state
from tests.support.repeating_texts import HONEST

CALL = '<tool_call>{"name": "look", "arguments": {"what": "up"}}</tool_call>\n'
QUOTED = "It stands between `<tool_call>` and `</tool_call>`. "
PIECES = [
    CALL, QUOTED, '<tool_call>{"name": "look", "argu', "<tool_call>nothing\n", "⏺ Working on it\n",
    "And it goes on like this. ", " \n" * 20, "```\n", "A word. ",
]  # fmt: skip
WORDS = "".join(f"Sentence {i} is about the number {i * i + 7}. " for i in range(40))
CHANT = "And it goes on like this. " * 500
written = st.lists(st.tuples(st.sampled_from(PIECES), st.integers(1, 30)), max_size=4).map(
    lambda parts: "".join(piece * times for piece, times in parts)
)


def reading(tools=None, hold: Hold = Hold.TOOL_CALLS, *, checked: bool = True, messages=MESSAGES) -> Reading:
    """An attempt under all the loop rules."""
    box = build_toolbox(TOOLS if tools is None else tools)
    expected = expect(messages, box, id_seed="r", checks=CheckConfig() if checked else None, loops=LoopConfig())
    made = open_state(expected, 100_000, hold=hold)
    made.take([Started()], 0)
    return made


def read(made: Reading, events: list[Event], size: int = 1) -> str:
    """Read them in batches, and the text that has left at the end."""
    out: list[Event] = []
    batches = [events[at : at + size] for at in range(0, len(events), size)]
    for batch in [*batches, [Finish(reason=FinishReason.STOP)]]:
        if made.loop is None and made.end is None:
            out += made.take(batch, 1)
    out += made.finish()
    return "".join(event.text for event in out if isinstance(event, Text))


@given(written, st.sampled_from(list(Hold)), st.integers(1, 3000), st.booleans())
def test_what_was_stopped_is_good_only_for_its_calls(text, hold, size, thought):
    """No truncated stream ends clean: an answer that was stopped in its circles is good where it brought whole and
    valid calls, and else it is one that was cut."""
    made = reading(hold=hold)
    kind = Reasoning if thought else Text
    read(made, [kind(text[at : at + size]) for at in range(0, len(text), size)])

    attempt = record_attempt(made, 2)
    assert made.loop is None or not attempt.good or attempt.calls_held
    assert made.loop is None or attempt.flaw is not None or made.judged.finish.reason is FinishReason.TOOL_CALLS


def test_three_quoted_calls_are_a_text_that_was_cut():
    """The scan takes what stands in quotes for calls, and the parser knows better: no call comes out, and the answer
    that was stopped for them is one that ran in circles."""
    made = reading(hold=Hold.ALL)
    read(made, [Text(QUOTED)] * 5)

    attempt = record_attempt(made, 2)
    assert made.judged.raw_text.startswith(QUOTED * 3)
    assert (attempt.flaw, attempt.text_out, attempt.calls_held) == (Flaw.CYCLE, False, False)


def test_three_real_calls_are_one_good_one():
    """The first is kept, and the tier is stopped; a third that can't be read is mended like any other."""
    made, broken = reading(), reading()
    read(made, [Text(CALL)] * 5)
    read(broken, [Text('<tool_call>{"name": "look", "argu</tool_call>\n')] * 5)

    assert record_attempt(made, 2).good
    assert len(made.judged.calls) == 1
    assert record_attempt(broken, 2).flaw is Flaw.TOOL_CALL_INVALID


@given(st.sampled_from([CALL, "⏺ Bash(npm test)\n", "[TOOL_REQUEST]{}[END_TOOL_REQUEST]\n"]), st.booleans())
def test_without_tools_nothing_written_is_a_call(piece, thought):
    """A log, or a text about calls, may hold the same line three times; where no tool is declared it is only a line."""
    made = reading(tools=[])
    events: list[Event] = [Reasoning(piece * 3)] * thought + [Text(piece * 3), Text("That was the log.")]

    assert read(made, events) == piece * 3 + "That was the log."
    assert made.loop is None
    assert record_attempt(made, 2).good


def test_lines_of_progress_are_no_calls():
    """A mark that no parser reads a call from convicts nobody, whatever is declared."""
    made = reading()
    events: list[Event] = [Text("⏺ Working on it\n" * 3 + WORDS)]
    read(made, [*events, CallDelta(index=0, name="look", arguments="{}")])

    assert made.loop is None
    assert [call.name for call in made.judged.calls] == ["look"]


@given(st.integers(1, 4000), st.sampled_from(list(Hold)), st.booleans())
def test_what_came_in_one_piece_is_not_lost(size, hold, tools):
    """Text that is held is all there to be judged; what else has come before it is stopped has left."""
    made = reading(None if tools else [], hold)
    text = WORDS + CHANT
    left = read(made, [Text(text[at : at + size]) for at in range(0, len(text), size)])

    attempt = record_attempt(made, 2)
    assert attempt.flaw is Flaw.CYCLE
    assert made.judged.raw_text.startswith(WORDS + CHANT[:8_000])
    assert text.startswith(made.judged.raw_text)
    assert attempt.text_out == bool(left) == (hold is Hold.TOOL_CALLS)


@pytest.mark.parametrize("hold", list(Hold))
def test_a_piece_that_convicts_by_its_calls_commits_nothing(hold):
    """Where it is the first, nothing has left: a better answer may still take its place, and what was read is kept."""
    made = reading(hold=hold)
    left = read(made, [Text(QUOTED * 5)])

    assert not left
    assert (QUOTED * 5).startswith(made.judged.raw_text)
    assert len(made.judged.raw_text) > len(QUOTED * 3)
    assert not record_attempt(made, 2).text_out


@pytest.mark.parametrize(
    "behind", ["", CALL.replace("up", "down"), " And a text that goes on for more than a block of characters."]
)
@given(size=st.integers(1, 2_000))
def test_where_calls_convict_does_not_depend_on_the_pieces(behind, size):
    """Law: of a call that is written three times, and whatever stands behind it, the same calls are delivered however
    they came."""
    text = CALL * 3 + behind + " " * 500
    whole, pieces = reading(), reading()
    read(whole, [Text(text)])
    read(pieces, [Text(text[at : at + size]) for at in range(0, len(text), size)])

    assert [call.name for call in pieces.judged.calls] == [call.name for call in whole.judged.calls]
    assert pieces.judged.flaw == whole.judged.flaw


RUNAWAYS = [
    '{"what": "' + "a" * 105_000,
    '{"what": "' + "the same line again. " * 5_000,
    json.dumps({"what": "        self.assertEqual(result, expected)\n" * 420}),
    '{"what": "up",' + " " * 12_000,
    '{"what": ' + "[" * 12_000,
]


@pytest.mark.parametrize("arguments", RUNAWAYS)
@pytest.mark.parametrize("size", [11, 1_000_000])
@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("said", ["", "Let me look. "])
def test_a_runaway_in_the_arguments_is_a_truncated_call(arguments, size, checked, said):
    """It is stopped, also where it came in one piece and would have ended at last, and never delivered: neither its
    call nor what stands before it as if that were the answer. Asked for again, it may be good."""
    made = reading(checked=checked)
    pieces = [CallDelta(index=0, arguments=arguments[at : at + size]) for at in range(0, len(arguments), size)]
    read(made, [Text(said)] * bool(said) + [CallDelta(index=0, id="c", name="look"), *pieces])

    attempt = record_attempt(made, 2)
    assert made.scan.stopped_in_arguments
    assert (attempt.flaw, attempt.good) == (Flaw.TRUNCATED, False)
    assert made.judged.finish.reason is not FinishReason.STOP
    assert TRAITS[Flaw.TRUNCATED].again is Again.REASK
    assert made.spending.written_bytes < 50_000 or size > 1_000


@pytest.mark.parametrize("arguments", RUNAWAYS)
@pytest.mark.parametrize("hold", list(Hold))
def test_a_runaway_in_a_written_call_is_one_too(arguments, hold):
    """A local model writes its calls as text: there it is the same flaw, and no text that is cut and delivered."""
    made, text = reading(hold=hold), '<tool_call>\n{"name": "look", "arguments": ' + arguments
    read(made, [Text(text[at : at + 11]) for at in range(0, len(text), 11)])

    assert made.loop is not None
    assert record_attempt(made, 2).flaw is Flaw.TRUNCATED


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("native", [True, False])
def test_a_file_that_repeats_by_nature_is_written(name, native):
    """The limits are the same for both: a thousand equal rows are a file."""
    made, arguments = reading(), json.dumps({"what": HONEST[name]})
    text = f'<tool_call>\n{{"name": "look", "arguments": {arguments}}}\n</tool_call>'
    parts = [arguments[at : at + 50] for at in range(0, len(arguments), 50)]
    calls = [CallDelta(index=0, id="c", name="look"), *(CallDelta(index=0, arguments=part) for part in parts)]
    read(made, calls if native else [Text(text[at : at + 50]) for at in range(0, len(text), 50)])

    assert made.loop is None
    assert json.loads(made.judged.calls[0].arguments) == {"what": HONEST[name]}


@pytest.mark.parametrize("size", [1, 3])
def test_equal_native_calls_end_the_reading(size):
    """Nothing is read behind the third copy, and the first of them are good calls."""
    made = reading()
    events = [CallDelta(index=at, id=f"c{at}", name="look", arguments='{"what": "up"}') for at in range(64)]
    read(made, list[Event](events), size)

    attempt = record_attempt(made, 2)
    assert made.scan.stopped_for_calls
    assert attempt.good
    assert {(call.name, call.arguments) for call in made.judged.calls} == {("look", '{"what": "up"}')}
    assert made.judged.finish.reason is FinishReason.TOOL_CALLS
    assert made.judged.dropped_calls >= 1


@pytest.mark.parametrize(("count", "stage"), [(0, None), (2, Flaw.LOOP), (4, Flaw.CIRCUIT_BREAK)])
@pytest.mark.parametrize("hold", list(Hold))
def test_what_was_only_reasoned_is_what_was_said(count, stage, hold):
    """An answer without a text and without a call is held against the ones before it by its reasoning."""
    made, thought = reading(hold=hold), "I should look at the sky first, and then see."
    expected = replace(made.plan.expected, turns=(Turn(text=thought),) * count)
    made.plan = replace(made.plan, expected=expected)
    for event in (Reasoning(thought[:20]), Reasoning(thought[20:]), Finish(reason=FinishReason.LENGTH)):
        made.take([event], 1)
    made.finish()

    assert made.judged.turn is None or made.judged.turn.text == thought
    assert record_attempt(made, 2).flaw is stage


@pytest.mark.parametrize(("count", "stage"), [(2, Flaw.EMPTY), (4, Flaw.CIRCUIT_BREAK)])
def test_an_empty_answer_is_asked_for_again_until_the_circuit_breaks(count, stage):
    """One that ends in its reasoning is no answer, so it is asked for as any empty one, and never delivered."""
    made, thought = reading(), "I should look at the sky first, and then see."
    expected = replace(made.plan.expected, turns=(Turn(text=thought),) * count)
    made.plan = replace(made.plan, expected=expected)
    read(made, [Reasoning(thought)])

    assert record_attempt(made, 2).flaw is stage
