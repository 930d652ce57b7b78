"""`response_format` on every tier: repaired, asked again, the next tier, or an error; never another form in silence."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from deployments.reports.report import report_of
from deployments.request.drive import drive
from deployments.request.run_record import Run
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.answer.gate import Hold
from reliability.answer.judgement import expect
from reliability.answer.wanted_form import WantedForm, read_wanted_form
from reliability.steps import Steps
from reliability.tools import CheckConfig, ToolBox, build_toolbox
from reliability.types import CallDelta, ChatRequest, Event, Flaw, RefuseCode
from tests.sim.clock import VirtualClock
from tests.sim.clock import run as play
from tests.unit.deployments.request.test_drive import TOOLS, make_ports, make_run, text_of

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
GOOD = '{"name": "Ada"}'


def drive_through(
    *answers: list[dict[str, Any]], strict: bool = True, tools: bool = False, finish: str | None = None
) -> tuple[Run, list[Event], list[ChatRequest]]:
    """Drive one request for JSON over two tiers, which give these answers, whoever is asked."""
    asked: list[ChatRequest] = []
    left, rule = list(answers), {} if finish is None else {"finish": finish}
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": strict}}

    class Tier(ScriptedTier):
        async def stream(self, request: ChatRequest) -> Any:
            asked.append(request)
            teller = ScriptedTier(
                name=self._name, script=[rule | {"answer": left.pop(0) if len(left) > 1 else left[0]}]
            )
            async for events in teller.stream(request):
                yield events

    async def go() -> tuple[Run, list[Event]]:
        clock = VirtualClock()
        ports = make_ports({name: Tier(name=name, script=[]) for name in ("fast", "standard")}, clock)
        run = make_run(("fast", "standard"), clock)
        form, box = read_wanted_form(wanted, Steps(1_000)), build_toolbox(TOOLS) if tools else ToolBox()
        assert isinstance(form, WantedForm)
        assert isinstance(box, ToolBox)
        run.request = replace(run.request, response_format=wanted, tools=TOOLS if tools else ())
        run.expected = expect(run.request.messages, box, id_seed="r", checks=CheckConfig(), form=form)
        run.hold = Hold.ALL
        return run, [event async for batch in drive(run, ports) for event in batch]

    run, events = play(go())
    return run, events, asked


def say(text: str) -> list[dict[str, Any]]:
    return [{"raw": text[at : at + 3]} for at in range(0, len(text), 3)]


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


def test_then_the_next_tier_and_then_an_error():
    """Law: where every tier misses a strict form, nothing of another form is delivered."""
    run, events, _ = drive_through(say("The name is Ada."))

    assert text_of(events) == ""
    assert {attempt.tier for attempt in run.attempts} == {"fast", "standard"}
    assert run.refusal is not None
    assert run.refusal.code is RefuseCode.INVALID_ANSWER


def test_a_form_that_is_only_a_wish_never_costs_the_answer():
    """Law: without `strict` the last answer is delivered, as it came, and its flaw stands in the report."""
    run, events, _ = drive_through(say("The name is Ada."), strict=False)

    assert text_of(events) == "The name is Ada."
    assert run.finish is not None
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
