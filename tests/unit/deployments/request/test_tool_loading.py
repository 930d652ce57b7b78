"""Loads of deferred tools: the same tier is asked again, and the client sees nothing of it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.openai_render import CollectedAnswer
from deployments.reports.report import report_of
from deployments.request.run_record import Run
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability import types
from reliability.admission.admit import AdmissionConfig
from reliability.deferred_tools import ROUNDS_MAX
from reliability.types import ChatRequest, Event, Finish, FinishReason, Flaw, Logprobs, Text, Usage, Verdict
from tests.sim.clock import VirtualClock
from tests.support.driving import Listening, calls_of, drive_once, show, tell_in_turn, text_of
from tests.support.many_tools import TOOLS, make_tool, write_call

LOAD = write_call("load_tools", names=["tool_3"])
CALL = write_call("tool_3", number=1)
GOOD = ("tool_3", '{"number": 1}')


def declare(tools: tuple[dict[str, Any], ...] = TOOLS, **fields: Any) -> Any:
    return show([{"role": "user", "content": "hi"}], tools, **fields)


def drive_answers(
    *answers: list[dict[str, Any]], names: tuple[str, ...] = ("fast",), change: Any = None, **ports: Any
) -> tuple[Run, list[Event], list[ChatRequest]]:
    tiers, asked = tell_in_turn(names, answers)
    run, events = drive_once(tiers, change or declare(), **({"deferring": frozenset({"fast"})} | ports))
    return run, events, asked


def roles(request: ChatRequest) -> list[str]:
    return [str(message["role"]) for message in request.messages]


def test_a_load_asks_the_same_tier_again() -> None:
    """Law: with the call and the definition behind the conversation; no flaw, a success for the breaker, tokens booked
    for each round, no retry, and notes that say what was loaded."""
    heard = Listening(VirtualClock(), AdmissionConfig())
    run, events, asked = drive_answers([LOAD], [CALL], admission=heard)

    assert calls_of(events) == [GOOD]
    assert [roles(request) for request in asked] == [["user"], ["user", "assistant", "tool"]]
    assert [request.added for request in asked] == [0, 2]
    assert '"name": "tool_3"' in asked[1].messages[-1]["content"]
    assert [(attempt.flaw, attempt.loads) for attempt in run.attempts] == [(None, ("tool_3",)), (None, None)]
    assert [verdict for verdict, _ in heard.verdicts] == [Verdict.SUCCESS] * 2
    assert all(usage is not None and usage.total_tokens for _, usage in heard.verdicts)
    assert [request.extra for request in heard.requests] == [False, False]
    assert "tier fast loaded tools: tool_3" in report_of(run)["notes"]


@pytest.mark.parametrize(
    ("answers", "delivered", "attempts"),
    [
        pytest.param([[LOAD, CALL]], [GOOD], 1, id="beside a call"),
        pytest.param([[CALL]], [GOOD], 1, id="not loaded before"),
        pytest.param([[write_call("tool_3", number="x")], [LOAD], [CALL]], [GOOD], 3, id="behind a correction"),
        pytest.param([[LOAD], [write_call("tool_3", number="x")], [CALL]], [GOOD], 3, id="before a correction"),
        pytest.param([[write_call("load_tools", names=["nothing"])], [CALL]], [GOOD], 2, id="unknown"),
        pytest.param([[write_call("load_tools")], [CALL]], [GOOD], 2, id="no names"),
        pytest.param([[LOAD], [{"text": "It is done."}]], [], 2, id="words behind it"),
        pytest.param(
            [[{"raw": '<tool_call>{"name": "load_tools", "arguments": {"names": "tool_3"}}</tool_call>'}], [CALL]],
            [GOOD],
            2,
            id="in the text",
        ),
    ],
)
@pytest.mark.parametrize("hold_all", [True, False])
def test_what_leaves_is_the_clients(answers: Any, delivered: Any, attempts: int, hold_all: bool) -> None:
    """Law: valid calls of declared tools leave, loaded or not, and no load does."""
    tiers, _ = tell_in_turn(["fast"], answers)
    run, events = drive_once(tiers, declare(), hold_all=hold_all, retries=2, deferring=frozenset({"fast"}))

    assert run.finish is not None
    assert (calls_of(events), len(run.attempts)) == (delivered, attempts)


def test_a_wrong_call_of_a_listed_tool_loads_it() -> None:
    """Law: a model that calls unseen and wrongly is shown the definition, which is no flaw; once it has seen it, it is
    corrected, with no more tools than were meant and the loader."""
    wrong = write_call("tool_3", number="x")
    run, events, asked = drive_answers([wrong], [wrong], [CALL])
    correction = str(asked[2].messages[-1]["content"])

    assert calls_of(events) == [GOOD]
    assert [(attempt.flaw, attempt.loads) for attempt in run.attempts] == [
        (None, ("tool_3",)),
        (Flaw.TOOL_CALL_INVALID, None),
        (None, None),
    ]
    assert json.dumps(TOOLS[3]) in asked[1].messages[-1]["content"]
    assert "Available tools: tool_3(number: integer), load_tools(names?: any)." in correction


@pytest.mark.parametrize("hold_all", [True, False])
@pytest.mark.parametrize("load", [LOAD, write_call("tool_3", number="x")])
def test_words_before_a_load_stand_before_those_behind_it(load: Any, hold_all: bool) -> None:
    """Law: what a model says before it loads and what it says behind is one text, in its order, streamed or not."""
    tiers, asked = tell_in_turn(["fast"], [[{"text": "I look at {this}. "}, load], [{"text": "It is done."}]])
    run, events = drive_once(tiers, declare(), hold_all=hold_all, deferring=frozenset({"fast"}))

    assert text_of(events) == "I look at {this}. \n\nIt is done."
    assert asked[1].messages[1]["content"] == "I look at {this}."
    assert run.finish is not None


@pytest.mark.parametrize("hold_all", [True, False])
def test_the_thought_before_each_load_is_one_of_its_own(hold_all: bool) -> None:
    """Law: what a model thinks behind a load begins apart, streamed or whole."""
    thoughts = ["I load.", "I load more.", "I call."]
    steps = [LOAD, write_call("load_tools", names=["tool_4"]), CALL]
    tiers, _ = tell_in_turn(["fast"], [[{"reasoning": said}, step] for said, step in zip(thoughts, steps, strict=True)])
    _, events = drive_once(tiers, declare(), hold_all=hold_all, deferring=frozenset({"fast"}))
    collected = CollectedAnswer()
    collected.take(events)

    assert "".join(collected.reasoning).split("\n\n") == thoughts


WRITTEN = '<tool_call>{"name": "load_tools", "arguments": {"names": ["tool_3"]}}</tool_call>'
BEYOND = [LOAD, {"raw": WRITTEN}, {"raw": 'load_tools(names=["tool_3"])'}, {"raw": WRITTEN[:50]}]


@pytest.mark.parametrize("beyond", BEYOND)
@pytest.mark.parametrize("one_demanded", [True, False])
def test_no_client_hears_of_a_load_too_many(beyond: Any, one_demanded: bool) -> None:
    """Law: a load that isn't answered, however it is written, is a flaw: no text and no error names it, nor does
    the correction offer it."""
    choice = {"type": "function", "function": {"name": "tool_3"}} if one_demanded else None
    loads = [] if one_demanded else [[LOAD]] * ROUNDS_MAX
    run, events, asked = drive_answers(*loads, [beyond], change=declare(tool_choice=choice))

    assert run.refusal is not None
    assert run.attempts[-1].flaw is Flaw.TOOL_CALL_INVALID
    assert "load_tools" not in repr([events, run.refusal.message, [attempt.detail for attempt in run.attempts]])
    assert "load_tools(" not in asked[-1].messages[-1]["content"].partition("Available tools")[2]


def test_rounds_are_bounded() -> None:
    """Law: behind `ROUNDS_MAX` loads one more is a call of a tool that doesn't exist, and the chain goes on."""
    run, _, asked = drive_answers(*([LOAD] * (ROUNDS_MAX + 2)), [CALL], names=("fast", "standard"))
    flaws = [attempt.flaw for attempt in run.attempts]

    assert flaws == [None] * ROUNDS_MAX + [Flaw.TOOL_CALL_INVALID] * 2 + [None]
    assert run.tier == "standard"
    assert roles(asked[-1]) == ["user"]  # what one tier has loaded is nothing to one that has all
    assert [request.loader for request in asked] == ["load_tools"] * (ROUNDS_MAX + 2) + [""]


@pytest.mark.parametrize(
    ("change", "ports"),
    [
        pytest.param(declare(), {"deferring": frozenset()}, id="off"),
        pytest.param(declare(TOOLS[:4]), {}, id="few tools"),
        pytest.param(declare(tool_choice={"type": "function", "function": {"name": "tool_3"}}), {}, id="one demanded"),
    ],
)
def test_else_a_load_is_no_call(change: Any, ports: Any) -> None:
    """Law: where nothing is deferred, or one tool is demanded, a load isn't answered."""
    run, events, _ = drive_answers([LOAD], [CALL], change=change, **ports)

    assert run.attempts[0].flaw is Flaw.TOOL_CALL_INVALID
    assert calls_of(events) == [GOOD]


def test_a_client_has_its_own_tool_of_that_name() -> None:
    """Law: the client's `load_tools` is called and delivered like any other."""
    own = write_call("load_tools", number=2)
    run, events, asked = drive_answers([own], change=declare((*TOOLS, make_tool("load_tools"))))

    assert calls_of(events) == [("load_tools", '{"number": 2}')]
    assert asked[0].loader == "load_tool_definitions"
    assert len(run.attempts) == 1


def test_a_required_call_may_be_loaded_first() -> None:
    """Law: a load breaks no `tool_choice: required`; words behind it do."""
    run, events, _ = drive_answers([LOAD], [{"text": "No."}], [CALL], change=declare(tool_choice="required"))

    assert calls_of(events) == [GOOD]
    assert [attempt.flaw for attempt in run.attempts] == [None, Flaw.TOOL_CALL_INVALID, None]


class _Counting(ScriptedTier):
    """A tier that tells each word's probability, those of calls in the text too."""

    async def stream(self, request: ChatRequest) -> Any:
        said = "It is done." if request.added else self._name
        for word in said.replace(" ", " \0").split("\0"):
            yield [Text(word), Logprobs((types.TokenLogprob(word.encode(), -0.5),))]
        yield [Finish(reason=FinishReason.STOP, usage=Usage(prompt_tokens=1, completion_tokens=1))]


@pytest.mark.parametrize("hold_all", [True, False])
@pytest.mark.parametrize("call", [WRITTEN, WRITTEN.replace("load_tools", "tool_3").replace("names", "n")])
def test_the_probabilities_of_a_load_stay_here(call: str, hold_all: bool) -> None:
    """Law: the tokens that leave are those of the text."""
    name = f"I look. {call}"
    tiers: Any = {name: _Counting(name=name, script=[])}
    run, events = drive_once(tiers, declare(top_logprobs=0), hold_all=hold_all, deferring=frozenset({name}))
    told = b"".join(token.raw for event in events if isinstance(event, Logprobs) for token in event.tokens)

    assert run.attempts[0].loads == ("tool_3",)
    assert told.split() == text_of(events).encode().split() == b"I look. It is done.".split()


STEPS = st.sampled_from(
    [LOAD, CALL, write_call("load_tools", names=["x"]), write_call("tool_4", number="x"), {"text": "Words. "}]
)


@given(st.lists(st.lists(STEPS, min_size=1, max_size=3), min_size=1, max_size=6), st.booleans())
def test_no_client_sees_a_load(answers: list[list[dict[str, Any]]], hold_all: bool) -> None:
    """Law: whatever a model writes, no event names the loader, and the calls are valid and of one attempt."""
    tiers, _ = tell_in_turn(["fast", "standard"], answers)
    run, events = drive_once(tiers, declare(), hold_all=hold_all, deferring=frozenset({"fast", "standard"}))

    assert (run.finish is None) != (run.refusal is None)
    assert "load_tools" not in repr(events)
    assert set(calls_of(events)) <= {GOOD}
    assert sum(attempt.calls_out for attempt in run.attempts) <= 1
