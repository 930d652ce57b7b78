"""Where one attempt ends, and what of it is told beside its text."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.reports.report import report_of
from deployments.request.accounting import OVERRUN_BYTES, TOKEN_BYTES_MOST
from deployments.request.attempt import record_attempt
from deployments.request.run_record import Run
from deployments.work.large_work import QUIET_BYTES
from reliability import types
from reliability.answer.estimate import text_bytes
from reliability.answer.judgement import expect
from reliability.answer.wanted_form import WantedForm, read_wanted_form
from reliability.faults import TRAITS, Ran
from reliability.loops import LoopConfig
from reliability.steps import Steps
from reliability.thinking import Thinking, ThoughtEnd
from reliability.tools import CheckConfig, ToolBox, build_toolbox
from reliability.types import CallDelta, Event, Failed, Fault, Finish, FinishReason, Flaw, Hold, Reasoning, Text, Usage
from tests.support.driving import TOOLS as ONE_TOOL
from tests.support.driving import drive_once, say, tell_in_turn, text_of
from tests.support.readings import MESSAGES, TOOLS, reading


@given(st.lists(st.text(max_size=400).map(Text) | st.text(max_size=400).map(Reasoning), max_size=8), st.integers(1, 40))
@example([Text("Unfortunately")], 1)
@example([Text("a" * 100)] * 8, 1)
def test_an_answer_ends_where_it_is_surely_longer_than_its_cap(events, cap):
    """A tier that ignores its cap is stopped at the first event that no tokenizer brings under it, as an answer that
    was cut; up to there nothing is touched."""
    made = reading(cap)
    legal = cap * TOKEN_BYTES_MOST + OVERRUN_BYTES
    before = 0
    for event in events:
        if before > legal:
            break
        made.take([event], 1)
        before += text_bytes(event.text)

    assert made.spending.written_bytes == before
    assert made.end == (Finish(reason=FinishReason.LENGTH) if before > legal else None)


def test_a_long_word_is_within_any_cap():
    """One token may be a whole word, and a few of them the whole answer: measured with SmolLM2's tokenizer, formal
    English has 10 bytes a token, deeply indented code 11."""
    formal = "Unfortunately, governmental institutions underestimate infrastructure"
    assert reading(1).take([Text("Internationalization")], 1) == [Text("Internationalization")]
    made = reading(7)
    made.take([Text(formal)], 1)
    assert made.end is None


@pytest.mark.parametrize("count", [types.Counted, lambda usage: Finish(reason=FinishReason.STOP, usage=usage)])
@pytest.mark.parametrize(("text", "cap", "tokens"), [("and so on " * 1_000, 1_000, 970), ("and so on " * 50, 5, 77)])
def test_what_a_tier_has_counted_is_known_though_it_was_stopped(text, cap, tokens, count):
    """The rest of a piece is not read any more, where the answer is over its cap or goes round in circles, but for the
    tier's own count in it."""
    expected = expect(MESSAGES, build_toolbox(()), id_seed="r", loops=LoopConfig() if cap == 1_000 else None)
    made = reading(cap, expected=expected)
    made.take([Text(text), Text("more"), count(Usage(prompt_tokens=5, completion_tokens=tokens))], 1)
    made.finish()

    assert record_attempt(made, 2).usage == Usage(prompt_tokens=5, completion_tokens=tokens)
    assert made.end.reason is FinishReason.LENGTH


@pytest.mark.parametrize("text", ["no call in it", '<tool_call>{"name": "look", "arguments": {}}</tool_call>'])
@pytest.mark.parametrize("native", [True, False])
def test_no_call_of_a_damaged_answer_is_trusted(text, native):
    """Where a piece was lost, a call may be whole and another than was meant, written as text or not: the attempt has
    failed. Text alone is delivered."""
    made = reading(100, expected=expect(MESSAGES, build_toolbox(TOOLS), id_seed="r", checks=CheckConfig()))
    calls = [CallDelta(index=0, id="c", name="look", arguments="{}")] * native
    made.take([types.Started(), Text(text), *calls, Finish(reason=FinishReason.STOP, damaged=True)], 1)
    made.finish()
    record = record_attempt(made, 2)

    if native or text.startswith("<"):
        assert (record.fault, made.judged) == (Fault.PROTOCOL, None)
        assert record.usage.completion_tokens > 0
    else:
        assert record.good


def told_by(events):
    return [token for event in events if isinstance(event, types.Logprobs) for token in event.tokens]


def spelled(text):
    """A token of four characters each, with a number of its own."""
    return [types.TokenLogprob(text[i : i + 4].encode(), -i / 8) for i in range(0, len(text), 4)]


def answered(text, *, hold=Hold.TOOL_CALLS, text_committed=False):
    """What leaves while `text` is read token by token, and what the judgement would deliver."""
    expected = expect(MESSAGES, build_toolbox(TOOLS), id_seed="r", checks=CheckConfig())
    made = reading(100, expected=expected, hold=hold, text_committed=text_committed)
    out = []
    for token in spelled(text):
        out += made.take([Text(token.raw.decode()), types.Logprobs((token,))], 1)
    made.take([Finish(reason=FinishReason.STOP)], 1)
    out += made.finish()
    return out, made.judged


@pytest.mark.parametrize("hold", list(Hold))
def test_probabilities_leave_with_their_text(hold):
    """Prose is told to the last token, whether it left piece by piece or at the end, and even where it looked like a
    call for a while."""
    text = 'Here is one: {"a": 1} and no more of it.'
    out, judged = answered(text, hold=hold)

    assert told_by([*out, *judged.events]) == spelled(text)
    assert hold is Hold.TOOL_CALLS or not out


def test_the_tokens_of_a_call_are_not_told():
    """What the client is sent as a call has no tokens beside it; the text before it has."""
    call = '<tool_call>{"name": "look", "arguments": {"what": "up"}}</tool_call>'
    out, judged = answered("Good. " + call)
    told = told_by([*out, *judged.events])

    assert [c.name for c in judged.calls] == ["look"]
    assert told == spelled("Good. " + call)[: len(told)]
    assert len(told) <= 2


def test_probabilities_of_text_that_is_dropped_are_dropped():
    """A second attempt's text doesn't leave behind a first one's, and neither do its numbers."""
    out, judged = answered("Something else entirely.", text_committed=True)

    assert told_by([*out, *judged.events]) == []


def test_probabilities_that_nobody_asked_for_stay_here():
    """A tier may send them all the same; the client gets the answer that it asked for."""
    made = reading(100, logprobs=False)
    out = made.take([Text("Hi."), types.Logprobs(tuple(spelled("Hi."))), Finish(reason=FinishReason.STOP)], 1)
    out += made.finish()

    assert made.judged is not None
    assert [type(event) for event in (*out, *made.judged.events)] == [Text]


ends = st.builds(
    Failed,
    fault=st.sampled_from(Fault),
    message=st.just("x"),
    status=st.sampled_from([None, 429, 500]),
    usage=st.sampled_from([None, Usage(), Usage(prompt_tokens=5, completion_tokens=3)]),
)
events = st.lists(st.just(types.Started()) | st.just(Text("so far")) | st.just(Reasoning("hm")), max_size=3)


@given(events, ends, st.booleans())
@example([Text("so far")], Failed(fault=Fault.CONNECT_TIMEOUT, message="x"), False)
@example([types.Started()], Failed(fault=Fault.CONNECT_TIMEOUT, message="x"), True)
@example([], Failed(fault=Fault.UNAVAILABLE, message="x", usage=Usage(prompt_tokens=5)), True)
def test_what_did_not_run_is_not_charged(events, end, trusted):
    """Whatever a tier says and in whatever order: an attempt that costs or writes something has run, and where it does
    neither, the table says whether it has."""
    made = reading(100, events=(), trusted=trusted)
    made.take([*events, end], 1)
    made.finish()
    record = record_attempt(made, 2)
    spoke = any(isinstance(event, Text | Reasoning) for event in events)

    assert record.ran or not (record.usage.total_tokens or spoke)
    if TRAITS[end.fault].ran is not Ran.RAN and not spoke and end.usage in (None, Usage()):
        assert record.usage.total_tokens == 0
        assert record.ran == (TRAITS[end.fault].ran is Ran.IF_STARTED and types.Started() in events)


def test_a_record_says_how_many_calls_came_as_calls():
    """What a report shows of a model that writes its calls in its own form, or in the text."""
    call = CallDelta(index=0, id="c", name="look", arguments="{}")
    for held, count in (([call], 1), ([Text('{"name": "look", "arguments": {}}')], 0)):
        made = reading(100)
        made.take([*held, Finish(reason=FinishReason.STOP)], 1)
        made.finish()

        assert record_attempt(made, 2).native_calls == count


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
GOOD = '{"name": "Ada"}'


def drive_through(
    *answers: list[dict[str, Any]], strict: bool = True, tools: bool = False, **rule: Any
) -> tuple[Run, list[Event], list[types.ChatRequest]]:
    """Drive one request for JSON over two tiers, which give these answers, whoever is asked."""
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": strict}}
    form, box = read_wanted_form(wanted, Steps(1_000)), build_toolbox(ONE_TOOL) if tools else ToolBox()
    assert isinstance(form, WantedForm)
    tiers, asked = tell_in_turn(("fast", "standard"), answers, **rule)

    def change(run: Run) -> None:
        run.request = replace(run.request, response_format=wanted, tools=ONE_TOOL if tools else ())
        run.expected = expect(run.request.messages, box, id_seed="r", checks=CheckConfig(), form=form)

    return *drive_once(tiers, change, hold_all=True), asked


def test_what_can_be_repaired_is_delivered_and_reported():
    """Law: a fence goes, and the report says so."""
    run, events, asked = drive_through(say(f"```json\n{GOOD}\n```"))

    assert text_of(events) == GOOD
    assert len(asked) == 1
    assert report_of(run)["repairs"] == ["fence"]


def test_a_wrong_form_is_asked_for_again_with_what_was_wrong():
    """Law: the model is told what is wrong, and shown the schema."""
    run, events, asked = drive_through(say('{"title": "Ada"}'), say(GOOD))

    assert text_of(events) == GOOD
    assert [attempt.flaw for attempt in run.attempts] == [Flaw.FORM_INVALID, None]
    assert "/name is required" in asked[1].messages[-1]["content"]
    assert asked[1].messages[-2] == {"role": "assistant", "content": '{"title": "Ada"}'}


@pytest.mark.parametrize("strict", [True, False])
def test_where_every_tier_misses_the_form_it_counts_how_it_was_wanted(strict):
    """Law: nothing of another form than a strict one is delivered. Without `strict` the form is only a wish: the last
    answer is delivered, as it came, and its flaw stands in the report."""
    run, events, _ = drive_through(say("The name is Ada."), strict=strict)

    assert {(attempt.tier, attempt.flaw) for attempt in run.attempts} >= {("fast", Flaw.FORM_INVALID)}
    if strict:
        assert (text_of(events), run.refusal.code) == ("", types.RefuseCode.INVALID_ANSWER)
        assert {attempt.tier for attempt in run.attempts} == {"fast", "standard"}
        return
    assert (text_of(events), run.refusal) == ("The name is Ada.", None)
    assert {attempt.flaw for attempt in run.attempts} == {Flaw.FORM_INVALID}
    assert any("response_format" in note for note in report_of(run)["notes"])


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_cut_text_is_not_judged(finish):
    """Law: the token limit is the client's own; its finish reason says that the text is cut."""
    _, events, asked = drive_through(say('{"name": "A'), finish=finish)

    assert text_of(events) == '{"name": "A'
    assert len(asked) == 1


def test_calls_are_judged_as_calls():
    """Law: beside tools the form is that of the last answer, not of a call."""
    _, events, asked = drive_through([{"tool_call": {"name": "f", "arguments": {"a": 1}}}], tools=True)

    assert [event.name for event in events if isinstance(event, CallDelta)] == ["f"]
    assert len(asked) == 1


def test_json_that_looks_like_a_call_is_the_answer_where_it_has_the_form():
    """Law: `{"name": …}` is what was asked for, and no broken call."""
    _, events, asked = drive_through(say(GOOD), tools=True)

    assert json.loads(text_of(events)) == {"name": "Ada"}
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("events", "thinking"),
    [
        ([Text("Hello."), Finish(reason=FinishReason.STOP)], None),
        ([Reasoning("Hm."), Reasoning(" So."), Text("4"), Finish(reason=FinishReason.STOP)], (2, ThoughtEnd.MODEL)),
        ([Text("<think>" + "x" * 500 + "</think>4"), Finish(reason=FinishReason.STOP)], (100, ThoughtEnd.MODEL)),
        ([Reasoning("Hm."), Finish(reason=FinishReason.LENGTH)], (1, None)),
        ([Reasoning("Hm."), Failed(fault=Fault.CRASHED, message="gone")], (1, None)),
        ([Reasoning("Hm."), Text("4"), Finish(reason=FinishReason.STOP, thought=ThoughtEnd.BUDGET)], (1, "budget")),
        (
            [Text("4"), Finish(reason=FinishReason.STOP, usage=Usage(completion_tokens=90, reasoning_tokens=80))],
            (80, ThoughtEnd.MODEL),
        ),
    ],
)
def test_a_thought_is_recorded_with_its_end(events, thinking):
    """Law: its tokens are the tier's own count, else a count from below; a tier that knows what has ended it says so,
    and else an answer behind it says that the model has."""
    made = reading(1_000, trusted=True)
    made.take(events, 1)
    made.finish()

    found = record_attempt(made, 2).thinking
    assert found == (None if thinking is None else Thinking(tokens=thinking[0], ended=thinking[1]))


def test_a_long_piece_leaves_the_event_loop():
    """Law: at most a few thousand characters are looked at on the event loop, of new text and of what is held."""
    made = reading(10_000)
    assert made.size_with([Text("x" * 50)]) < made.size_with([Text("x" * 4_000)]) <= QUIET_BYTES
    assert made.size_with([Text("x" * 2_500), Reasoning("x" * 2_500)]) > QUIET_BYTES
