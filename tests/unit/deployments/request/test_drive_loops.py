"""A model that repeats a call with its result, and has said a word before it that can't be taken back."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings

from deployments.reports.report import report_of
from deployments.request.drive import drive
from deployments.request.interfaces import MonotonicClock, Ports
from deployments.request.run_record import Run
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability import types
from reliability.admission.request import AdmissionRequest, Grant, Rejection
from reliability.answer.estimate import prompt_bytes, tokens_max, tokens_min
from reliability.loops import LoopConfig, Turn, Window, observe
from reliability.summaries import NEWEST_END, NEWEST_HEAD
from reliability.types import CallDelta, ChatRequest, Event, Fault, Finish, FinishReason, Flaw, Hold, Text, Usage
from tests.sim.world import SimAdmission
from tests.support import driving
from tests.support.driving import ANSWERS, CALL, TOOLS, Listening, calls_of, drive_once, scripted, show, text_of
from tests.unit.deployments.request.test_drive import names

SAID = {"text": "Let me look. "}
NUDGED = {"transcript": {"regex": "nothing has changed|said this already"}}
ADVISED = {"when": NUDGED, "answer": "It is one."}
BAD_CALL = {"tool_call": {"name": "f", "arguments": "{"}}


def laps(count: int) -> tuple[dict[str, Any], ...]:
    """A conversation that has called the same tool so often, and was always told the same."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "what is a?"}]
    for lap in range(count):
        call = {"name": "f", "arguments": '{"a": 1}'}
        calls = [{"id": f"c{lap}", "type": "function", "function": call}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"c{lap}", "content": "one"})
    return tuple(messages)


def answered(*scripts: Any, attempts_max: int = 8) -> tuple[Run, list[Event]]:
    """Stream an answer to the third lap, from tiers with these scripts."""

    def change(run: Run) -> None:
        show(laps(2))(run)
        run.limits = replace(run.limits, attempts_max=attempts_max)

    return drive_once(scripted({f"t{i}": script for i, script in enumerate(scripts)}), change, retries=3)


def test_a_stubborn_model_before_a_tier_without_a_key_gives_its_call():
    """It repeats the call in spite of the nudge, and the tier behind it isn't there: the third lap stops nobody, so the
    call is delivered, marked, and not the missing tier's error."""
    run, events = answered([{"answer": [CALL]}], [{"answer": [{"unavailable": "OPENROUTER_API_KEY is not set"}]}])

    assert run.refusal is None
    assert calls_of(events) == [("f", '{"a": 1}')]
    assert [(a.tier, a.flaw, a.fault) for a in run.attempts] == [
        ("t0", Flaw.LOOP, None),
        ("t0", Flaw.LOOP, None),
        ("t1", None, Fault.UNAVAILABLE),
    ]
    assert run.tier == "t0"
    assert report_of(run)["loop"] == "nudged"


@pytest.mark.parametrize("tiers", [1, 2])
@pytest.mark.parametrize("attempts_max", [1, 2, 8])
def test_a_nudge_that_works_breaks_no_stream(tiers, attempts_max):
    """The model takes the advice and answers in words, which come too late: its text stands. The call that it was
    nudged for is whole and valid, so that is what it gets, marked, and nobody is asked for words again."""
    looping = {"times": 1, "answer": [SAID, CALL]}
    run, events = answered(*[[ADVISED, looping, {"answer": "one"}]] * tiers, attempts_max=attempts_max)

    assert run.refusal is None
    assert run.finish.reason is FinishReason.TOOL_CALLS
    assert text_of(events) == "Let me look. "
    assert calls_of(events) == [("f", '{"a": 1}')]
    assert [a.flaw for a in run.attempts] == [Flaw.LOOP, Flaw.EMPTY][:attempts_max]
    assert run.attempts[0].calls_out
    assert report_of(run)["loop"] == ("nudged" if attempts_max > 1 else "detected")


def test_words_behind_a_looped_call_stay_behind():
    """The text of an answer comes from one attempt: where a later one has spoken, the words that were held with the
    looped call are dropped, and the call is delivered."""
    looping = {"times": 1, "answer": [CALL, {"text": "I said so."}]}
    advised = {"when": NUDGED, "answer": [{"text": "Well then. "}, BAD_CALL]}
    run, events = answered([advised, looping, {"answer": "It is one."}])

    assert [a.flaw for a in run.attempts] == [Flaw.LOOP, Flaw.TOOL_CALL_INVALID, Flaw.EMPTY]
    assert text_of(events) == "Well then. "
    assert [e.name for e in events if isinstance(e, CallDelta)] == ["f"]
    assert not any(isinstance(event, types.Logprobs) for event in events)


def test_a_nudge_that_brings_another_call_is_taken():
    """What the nudge is for: the text stands, and the calls are those of the model's second thought."""
    other = {"tool_call": {"name": "f", "arguments": {"a": 2}}}
    advised = {"when": NUDGED, "answer": [{"text": "Then so. "}, other]}
    run, events = answered([advised, {"answer": [SAID, CALL]}])

    assert [a.flaw for a in run.attempts] == [Flaw.LOOP, None]
    assert text_of(events) == "Let me look. "
    assert [e.arguments for e in events if isinstance(e, CallDelta)] == ['{"a": 2}']


@pytest.mark.parametrize("copies", [60, 600])
def test_an_answer_in_one_piece_is_cut_where_it_turns_round(copies):
    """An upstream that doesn't stream sends it all at once, with its count. Where that is a runaway, what came before
    the circles is delivered, with the finish reason `length`; where it ends soon, all of it. What the upstream has
    counted is settled."""
    words = "".join(f"Sentence {i} is about the number {i * i + 7}. " for i in range(60))
    count = Usage(prompt_tokens=10, completion_tokens=1900)

    class AtOnce(ScriptedTier):
        async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
            yield [types.Started()]
            text = words + "And it goes on like this. " * copies
            yield [Text(text), Finish(reason=FinishReason.STOP, usage=count)]

    run, events = drive_once({"fast": AtOnce(name="fast", script=[])}, hold_all=True)

    assert text_of(events).startswith(words)
    assert run.finish is not None
    assert len(run.finish.notes) == 1
    assert replace(run.finish, notes=()) == Finish(
        reason=FinishReason.STOP if copies == 60 else FinishReason.LENGTH, usage=count
    )
    assert text_of(events).count("And it goes on") == (60 if copies == 60 else 2)
    assert [(a.flaw, a.usage) for a in run.attempts] == ([(None, count)] if copies == 60 else [(Flaw.CYCLE, count)] * 2)


@pytest.mark.parametrize(("count", "outcome"), [(1, "streamed"), (2, "nudged"), (4, "broken")])
def test_an_agent_whose_answers_are_texts_is_nudged_before_it_is_told(count, outcome):
    """A text that comes again is held until it is judged: at the third time the model is asked for another one, and at
    the fifth the client gets one clear error, and not the text before it."""
    text = "I have changed the file as you said."
    turns = ({"role": "assistant", "content": text}, {"role": "user", "content": "continue"})
    messages = ({"role": "user", "content": "Change it."}, *turns * count)

    script = [{"when": NUDGED, "answer": "Then otherwise."}, {"answer": text}]
    run, events = drive_once(scripted({"t0": script}), show(messages, (), stream=True))

    assert text_of(events) == {"streamed": text, "nudged": "Then otherwise.", "broken": ""}[outcome]
    assert (run.refusal is not None and run.refusal.code is types.RefuseCode.LOOP) is (outcome == "broken")


async def test_a_session_without_its_history_is_held_by_its_window():
    """What it was answered before is known only with the grant; then the text waits as well."""
    text, window = "I have changed the file as you said.", Window()
    for number in "ab":
        window, _ = observe(window, Turn(text=text), LoopConfig(), number)
    clock, tiers = MonotonicClock(), scripted({"t0": [{"answer": [{"text": "One. "}, {"text": "Two. "}]}]})
    for known, held in ((Window(), False), (window, True)):
        run, ports = driving.make_run(("t0",), clock), driving.make_ports(tiers, clock)
        run.expected = replace(run.expected, asked="c")
        ports.admission.window = known
        batches = [batch async for batch in drive(run, ports)]
        assert (sum(any(isinstance(event, Text) for event in batch) for batch in batches) == 1) is held


@pytest.mark.parametrize("hold", list(Hold))
@pytest.mark.parametrize("said", [[], [SAID]])
@pytest.mark.parametrize("arguments", ['{"a": "' + "x" * 105_000, json.dumps({"a": "x" * 105_000})])
def test_a_runaway_call_is_another_tiers_to_make(hold, said, arguments):
    """Its arguments are stopped and asked for again, then the next tier is asked; nothing of the broken call leaves,
    also where it came whole."""
    runaway = {"tool_call": {"name": "f", "arguments": arguments}}
    tiers = scripted({"t0": [{"answer": [*said, runaway]}], "t1": [{"answer": [CALL]}]})
    run, events = drive_once(tiers, hold_all=hold is Hold.ALL)

    assert {a.flaw for a in run.attempts if a.tier == "t0"} == {Flaw.TRUNCATED}
    assert run.finish is not None
    assert run.tier == "t1"
    assert calls_of(events) == [("f", '{"a": 1}')]


LONG_CALL = {"tool_call": {"name": "g", "arguments": {"a": "word " * 700}}}


class Overheard(ScriptedTier):
    """Remembers what it was sent, and never says what it has counted."""

    sent: list[ChatRequest]

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        self.sent.append(request)
        async for batch in super().stream(request):
            yield [replace(event, usage=None) if hasattr(event, "usage") else event for event in batch]


def asked(
    scripts: dict[str, Any], *, size: int | None = None, **ports: Any
) -> tuple[Run, Listening, list[ChatRequest]]:
    """Drive one request; return what was asked of the admission, and what was sent to the tiers."""

    async def go() -> tuple[Run, Listening, list[ChatRequest]]:
        clock, sent = MonotonicClock(), []
        tiers = {name: Overheard(name=name, script=script) for name, script in scripts.items()}
        run = driving.make_run(tuple(tiers), clock, retries=2)
        run.prompt_bytes = prompt_bytes(run.request.messages, TOOLS) if size is None else size
        made: Ports = replace(driving.make_ports(tiers, clock), **ports)
        admission = Listening(clock, made.admission.config)
        for tier in tiers.values():
            tier.sent = sent
        async for _ in drive(run, replace(made, admission=admission)):
            pass
        return run, admission, sent

    return asyncio.run(go())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names)
@example(("invented",))
@example(("invented", "written-badly", "good"))
def test_what_is_reserved_is_the_prompt_that_is_sent(chosen):
    """With the failed answer in it, and the words of the correction; and so is the estimate that stands where no tier
    says what it has read."""
    scripts = {tier: [{"answer": ANSWERS[name][0]}] for tier, name in zip(driving.CHAIN, chosen, strict=False)}
    run, admission, sent = asked(scripts)
    read = [tokens_max(prompt_bytes(request.messages, request.tools)) for request in sent]

    assert [request.prompt_tokens for request in admission.requests] == read
    estimates = zip(run.attempts, read, strict=True)
    assert all(a.usage.prompt_tokens in (0, tokens) for a, tokens in estimates if a.usage and not a.usage.exact)


def test_the_size_that_is_known_is_not_counted_again():
    """A long history is walked once, when the request comes in: the first call, and a resample, read no more."""
    _, admission, sent = asked({"fast": [{"answer": ANSWERS["empty"][0]}]}, size=123_456)

    assert [request.prompt_tokens for request in admission.requests] == [tokens_max(123_456)] * 3
    assert len({request.messages for request in map(_hashable, sent)}) == 1


def _hashable(request: ChatRequest) -> ChatRequest:
    return replace(request, messages=tuple(str(message) for message in request.messages))


def test_a_correction_that_can_not_fit_is_not_sent():
    """The client's prompt fits the tier and the correction doesn't: the next tier is asked, and no work is wasted."""
    room = tokens_min(prompt_bytes(({"role": "user", "content": "hi"},), TOOLS)) + 50
    scripts = {"fast": [{"answer": [LONG_CALL]}], "standard": [{"answer": "good"}]}
    run, _, sent = asked(scripts, context_tokens={"fast": room})

    assert [(a.tier, a.flaw or a.fault) for a in run.attempts] == [
        ("fast", Flaw.TOOL_CALL_INVALID),
        ("fast", Fault.CONTEXT_LENGTH),
        ("standard", None),
    ]
    assert len(sent) == 2


@pytest.mark.parametrize("cap", [7, 5000])
async def test_the_grant_still_bounds_the_answer(cap):
    """What may be written is settled after the prompt is known: the smaller of what was asked for and granted."""

    class Small(SimAdmission):
        async def admit(self, request: AdmissionRequest) -> Grant | Rejection:
            granted = await super().admit(request)
            return replace(granted, output_cap=cap) if isinstance(granted, Grant) else granted

    clock, tier = MonotonicClock(), Overheard(name="fast", script=[{"answer": ANSWERS["invented"][0]}])
    tier.sent, ports = [], driving.make_ports({"fast": tier}, clock)
    small = Small(ports.admission.rng, clock, ports.admission.config)
    async for _ in drive(driving.make_run(("fast",), clock), replace(ports, admission=small)):
        pass

    assert [request.max_tokens for request in tier.sent] == [min(cap, 2000)] * 2
    assert all(0 < request.timeout_s <= 30 for request in tier.sent)


COPIED = "It has been done already, as it was for a1.txt."
SAYS_IT = [{"text": COPIED}]


LOOK = [{"tool_call": {"name": "read", "arguments": {"a": 1}}}]
READS = ({"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {"a": {}}}}},)


@pytest.mark.parametrize(("nudged", "events"), [(LOOK, [("read", '{"a": 1}')]), (SAYS_IT, [])], ids=["looks", "says"])
def test_a_copied_answer_is_held_and_asked_for_a_call(nudged, events):
    """Law: not a word of it leaves before the model was asked for a look instead, under a grammar; who says it again is
    delivered, marked."""
    messages = [*laps(1), {"role": "assistant", "content": "one"}]
    for name in ("a1.txt", "a2.txt"):
        messages += [{"role": "user", "content": f"read {name}"}, {"role": "assistant", "content": COPIED}]
    messages.append({"role": "user", "content": "read a3.txt"})

    tiers, asked = driving.tell_in_turn(["t0"], [SAYS_IT, nudged])
    run, told = drive_once(tiers, show(messages, READS, stream=True), retries=3)

    assert run.refusal is None
    assert [attempt.flaw for attempt in run.attempts] == [Flaw.LOOP, None if events else Flaw.LOOP]
    assert [(request.constrained, request.must_look) for request in asked] == [(False, ()), (True, ("read",))]
    assert (calls_of(told), text_of(told)) == (events, "" if events else COPIED)
    assert report_of(run)["loop"] == "nudged"


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        ("Read HEARTBEAT.md. If all is well, reply HEARTBEAT_OK.\nIt is {}", "HEARTBEAT_OK\n\nNothing is to be done."),
        ("[cron {}] Is any task of the list due? Remind me if so.", "No task is due right now."),
        ("[Telegram Max {}] thanks!", "You're welcome! Tell me if anything else comes up."),
    ],
)
def test_a_quiet_monitor_is_answered_for_as_long_as_it_asks(ask, answer):
    """Law: the same words to a question that comes at another time are delivered, without another attempt."""
    messages = [*laps(1), {"role": "assistant", "content": "I am watching."}]
    for n in range(12):
        messages.append({"role": "user", "content": ask.format(f"{n // 2:02}:{30 * (n % 2):02}")})
        tiers = scripted({"fast": [{"answer": [{"text": answer}]}]})
        run, events = drive_once(tiers, show(messages), hold_all=True)
        assert (run.refusal, len(run.attempts), text_of(events)) == (None, 1, answer)
        messages.append({"role": "assistant", "content": answer})


ORDER = "Your task is to create a detailed summary of the conversation so far, for the agent that goes on with it."
CIRCLES = "The user has read files. " + "The conversation also holds a summary of the technical details. " * 40
COUNTS = "The user has read files. " + " ".join(
    f"The assistant then asked the user to read part_{n:02}.txt." for n in range(4, 90)
)
LISTS = "The user has read files. What is left: " + ", ".join(f"part_{n}.txt" for n in range(3, 300)) + "."
SUMMED = NEWEST_HEAD + "what is a?" + NEWEST_END


@pytest.mark.parametrize(
    ("script", "begins"),
    [
        ([{"answer": "They asked what a is."}], "They asked what a is."),
        ([{"answer": "<summary>\nThey asked.\n</summary>"}], "<summary>\nThey asked."),
        ([{"answer": CIRCLES}], "The user has read files."),
        ([{"answer": COUNTS}], "The user has read files."),
        ([{"answer": LISTS}], "The user has read files."),
        ([{"answer": "They asked wh", "finish": "length"}], "They asked wh"),
    ],
    ids=["good", "closed", "circles", "counts", "lists", "cut"],
)
def test_a_client_s_summary_ends_with_the_user_s_words(script, begins):
    """Law: held whole, stopped where it circles or counts on what it makes up, and never left to be continued."""
    messages = [*laps(1), {"role": "user", "content": ORDER}]
    run, events = drive_once(scripted({"t0": script}), show(messages, stream=True), retries=3)

    assert (run.hold, run.refusal, run.finish.reason) == (Hold.ALL, None, FinishReason.STOP)
    assert text_of(events).startswith(begins)
    assert text_of(events).removesuffix("\n</summary>").endswith(SUMMED)
    assert len(text_of(events)) < 1_500
