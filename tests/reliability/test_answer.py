"""The judgement on whole answers, and the request of the next attempt."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.admission.admit import Ask, RejectedBy, Rejection
from reliability.admission.budget import Load, Policy, Window
from reliability.answer import gate
from reliability.answer.gate import TextKind
from reliability.answer.judgement import expect, judge, settle_text
from reliability.escalation.health import rejected_attempt, verdict_of
from reliability.escalation.policies import Call
from reliability.escalation.reask import RESAMPLE_TEMPERATURE, request_for
from reliability.escalation.retry_strategy import Reask, Rung
from reliability.loops import LoopConfig
from reliability.tools import CheckConfig, ToolBox, build_toolbox
from reliability.types import (
    Attempt,
    CallDelta,
    ChatRequest,
    Event,
    Fault,
    Finish,
    FinishReason,
    Flaw,
    Reasoning,
    Text,
    Verdict,
)

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
        },
    }
]
BOX = build_toolbox(TOOLS)
assert isinstance(BOX, ToolBox)
USER: list[dict[str, Any]] = [{"role": "user", "content": "find cats"}]
STOP = Finish(reason=FinishReason.STOP)


def wanted(messages: list[dict[str, Any]] = USER, **keys: Any) -> Any:
    defaults = {"id_seed": "r", "checks": CheckConfig(), "loops": LoopConfig()}
    return expect(messages, BOX, **(defaults | keys))


def ruled(held: list[Event], finish: Finish = STOP, *, sent: str = "", committed: bool = False, **keys: Any) -> Any:
    return judge(wanted(**keys), held, finish, sent=sent, text_committed=committed, attempt=0)


def native(arguments: str, name: str = "search", index: int = 0) -> CallDelta:
    return CallDelta(index=index, id=f"c{index}", name=name, arguments=arguments)


GOOD = '{"q": "cats"}'


@pytest.mark.parametrize(
    "text",
    [
        f'<tool_call>{{"name": "search", "arguments": {GOOD}}}</tool_call>',
        f'```json\n{{"name": "search", "arguments": {GOOD}}}\n```',
        f'{{"name": "search", "arguments": {GOOD}}}',
        f'[TOOL_REQUEST]{{"name": "search", "arguments": {GOOD}}}[END_TOOL_REQUEST]',
        "[search(q='cats')]",
    ],
)
def test_a_call_written_as_text_leaves_as_a_call(text):
    """Whatever dress the call is in, the client gets one whole call, a finish reason that says so, and no markup."""
    judged = ruled([Text(text)])

    assert judged.flaw is None
    assert judged.finish.reason is FinishReason.TOOL_CALLS
    (delta,) = judged.events
    assert (delta.name, json.loads(delta.arguments)) == ("search", {"q": "cats"})
    assert delta.id


@pytest.mark.parametrize(
    ("held", "finish", "flaw"),
    [
        ([native("{")], FinishReason.TOOL_CALLS, Flaw.TOOL_CALL_INVALID),
        ([native("{}")], FinishReason.TOOL_CALLS, Flaw.TOOL_CALL_INVALID),
        ([native(GOOD, name="serch_web")], FinishReason.TOOL_CALLS, Flaw.TOOL_CALL_INVALID),
        ([native(GOOD), native("{", index=1)], FinishReason.TOOL_CALLS, Flaw.TOOL_CALL_INVALID),
        ([Text('<tool_call>{"name": "search", "argu')], FinishReason.LENGTH, Flaw.TRUNCATED),
        ([native('{"q": "ca')], FinishReason.LENGTH, Flaw.TRUNCATED),
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


def test_identical_calls_of_one_answer_are_cut_to_two():
    """A model that hangs on one call is not obeyed five times; different calls all stay."""
    same = ruled([native(GOOD, index=i) for i in range(5)])
    different = ruled([native(json.dumps({"q": str(i)}), index=i) for i in range(5)])

    assert (len(same.calls), same.dropped_calls, same.flaw) == (2, 3, None)
    assert (len(different.calls), different.dropped_calls) == (5, 0)
    assert len({call.id for call in same.calls}) == 2


def lapped(laps: int, result: str = "none") -> list[dict[str, Any]]:
    call = {"name": "search", "arguments": GOOD}
    out = list(USER)
    for lap in range(laps):
        out.append({"role": "assistant", "tool_calls": [{"id": f"l{lap}", "type": "function", "function": call}]})
        out.append({"role": "tool", "tool_call_id": f"l{lap}", "content": result})
    return out


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


WRITTEN = '{"name": "search", "arguments": {"q": "x"}}'
TAGS = ["<tool_call>", "</tool_call>", "```", "json\n", "⏺ search: x\n", "<"]
PIECES = st.sampled_from(["Hello ", "{", "}", '{"a": 1}', WRITTEN, *TAGS, "\n", "search", "(", ")", "[", "]", " and "])


@given(st.lists(PIECES, max_size=14), st.lists(st.integers(1, 9), max_size=30))
def test_the_outcome_doesn_t_depend_on_the_cuts(pieces, cuts):
    """However the text arrives, the same text leaves, the same calls leave, and no call leaves as text."""
    text = "".join(pieces)

    assert through(text, cuts) == through(text, [])


def through(text: str, cuts: list[int]) -> tuple[str, list[tuple[str, str]]]:
    state = gate.open_gate(["search"], partial(settle_text, toolbox=BOX))
    sent: list[str] = []
    at = 0
    for size in [*cuts, len(text)]:
        if text[at : at + size]:
            state, out = gate.step(state, Text(text[at : at + size]))
            sent += [event.text for event in out if isinstance(event, Text)]
        at += size
    _, out, held = gate.finish(state)
    sent += [event.text for event in out if isinstance(event, Text)]
    judged = ruled(list(held), sent="".join(sent))
    rest = [event.text for event in judged.events if isinstance(event, Text)]
    return "".join([*sent, *rest]), [(call.name, call.arguments) for call in judged.calls]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"name": "search", "arguments": {}}', TextKind.CALL),
        ('{"name": "Bob", "age": 3}', TextKind.PROSE),
        ("<tool_call>{", TextKind.CALL),
        ("⏺ sea", TextKind.OPEN),
    ],
)
def test_what_a_candidate_is(text, kind):
    """A call, an attempt at one, prose, or too short to tell."""
    assert settle_text(text, "", BOX) is kind


def test_thinking_is_no_answer():
    """Held reasoning leaves as reasoning, and alone it is an empty answer."""
    judged = ruled([Reasoning("hm")])

    assert judged.events == (Reasoning("hm"),)
    assert judged.flaw is Flaw.EMPTY


# -- the next attempt's request ------------------------------------------------------------------------------------

REQUEST = ChatRequest(
    request_id="r", session_id="s", messages=tuple(USER), max_tokens=9, timeout_s=1.0, temperature=0.0, seed=4
)


def test_a_correction_stands_at_the_end_and_names_the_error():
    """The user's wording, with every violation and the tools; the conversation before it is untouched."""
    bad = ruled([native("{}")])
    call = Call(tier="fast", reask=Reask(Rung.CORRECT, constrained=False))
    request = request_for(REQUEST, call, attempts=1, failed_text="oops", violations=bad.violations, toolbox=BOX)

    assert request.messages[:1] == REQUEST.messages
    assert [m["role"] for m in request.messages[1:]] == ["assistant", "user"]
    words = request.messages[-1]["content"]
    assert words.startswith("Your previous response contained an invalid tool call. The error was: ")
    assert "'q'" in words or "q" in words
    assert "search(" in words
    assert request.temperature == 0.0


def test_a_correction_shows_the_model_its_own_call_and_no_words_of_ours():
    """A weak model copies what it is shown as its own: a native call is shown as a call, and nothing is made up."""
    bad = ruled([native("{}")])
    call = Call(tier="fast", reask=Reask(Rung.CORRECT, constrained=False))
    shown = request_for(REQUEST, call, attempts=1, failed_text=bad.written, violations=bad.violations, toolbox=BOX)
    nothing = request_for(REQUEST, call, attempts=1, failed_text="", violations=bad.violations, toolbox=BOX)

    assert shown.messages[-2]["content"] == '<tool_call>\n{"name": "search", "arguments": {}}\n</tool_call>'
    assert [m["role"] for m in nothing.messages[1:]] == ["user"]


def test_a_resample_has_the_clean_prompt_and_some_chance():
    """The same messages, warm enough for another answer, and another seed that follows from the client's."""
    call = Call(tier="fast", reask=Reask(Rung.RESAMPLE, constrained=False))
    request = request_for(REQUEST, call, attempts=2)

    assert request.messages == REQUEST.messages
    assert (request.temperature, request.seed) == (RESAMPLE_TEMPERATURE, 6)
    assert request_for(replace(REQUEST, temperature=1.5), call, attempts=1).temperature == 1.5


def test_a_constrained_re_ask_says_so():
    """The tier is asked to decode under the grammar."""
    call = Call(tier="fast", reask=Reask(Rung.CONSTRAIN, constrained=True))

    assert request_for(REQUEST, call, attempts=1).constrained


def test_a_nudge_tells_of_the_loop():
    """The nudge is the last message; without a loop, or without being asked to, nothing is added."""
    loop = ruled([native(GOOD)], messages=lapped(2)).loop
    request = request_for(REQUEST, Call(tier="fast", nudge=True), attempts=1, loop=loop)

    assert "search" in request.messages[-1]["content"]
    assert len(request.messages) == len(REQUEST.messages) + 1
    assert request_for(REQUEST, Call(tier="fast", nudge=True), attempts=1) == REQUEST
    assert request_for(REQUEST, Call(tier="fast"), attempts=1, loop=loop) == REQUEST


# -- health --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flaw", list(Flaw))
def test_a_flaw_says_nothing_bad_of_the_tier(flaw):
    """An answer that isn't good enough came from a tier that is well."""
    assert verdict_of(Attempt(tier="fast", ran=True, flaw=flaw)) is Verdict.SUCCESS


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.CRASHED, Fault.PROTOCOL, Fault.AUTH, Fault.IDLE_TIMEOUT])
def test_a_fault_of_the_tier_is_a_failure(fault):
    """The breaker hears of it; but not where the client had left."""
    attempt = Attempt(tier="fast", ran=True, fault=fault)

    assert verdict_of(attempt) is Verdict.FAILURE
    assert verdict_of(replace(attempt, cancelled=True)) is Verdict.IGNORED


@pytest.mark.parametrize("fault", [Fault.CONTEXT_LENGTH, Fault.UNSUPPORTED, Fault.BAD_REQUEST, Fault.LOADING])
def test_what_is_the_request_s_fault_is_not_the_tier_s(fault):
    """Ignored."""
    assert verdict_of(Attempt(tier="fast", ran=True, fault=fault)) is Verdict.IGNORED


def test_a_full_tier_that_says_until_when_is_left_alone():
    """429 with Retry-After is a failure with a known end; without it nothing is known."""
    full = Attempt(tier="fast", ran=True, fault=Fault.OVERLOADED)

    assert verdict_of(full) is Verdict.IGNORED
    assert verdict_of(replace(full, retry_after_s=3.0)) is Verdict.FAILURE


@pytest.mark.parametrize("rejected_by", list(RejectedBy))
def test_every_bar_has_its_fault(rejected_by):
    """A call that was not let through is written down: nothing ran, and the reason is said."""
    rejection = Rejection("fast", rejected_by, "why", 2.0, Policy.HARD_STOP, (Load(Window.HOUR, 90, 80, 112),), 20)
    attempt = rejected_attempt(rejection, Ask(tier="fast", key="k", session="s", prompt_tokens=20))

    assert not attempt.ran
    assert attempt.fault is not None
    assert attempt.detail
    assert "was not called" not in attempt.detail
    assert attempt.hard_stop == (rejected_by is RejectedBy.BUDGET)
