"""Valid calls that are probably not right: who answers then, and that nobody's answer is changed."""

import json
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deployments.reports.report import report_of
from deployments.request.run_record import Run
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from deployments.work.large_work import QUIET_BYTES, Large, at_once
from reliability.answer.gate import Hold
from reliability.answer.wanted_form import WantedForm, read_wanted_form
from reliability.confidence import UNWANTED_ALONE_MIN, Calibration, ModelCalibration
from reliability.loops import LoopConfig
from reliability.steps import Steps
from reliability.types import ChatRequest, Event, Finish, Flaw, Reason
from tests.support.driving import ANSWERS, CHAIN, calls_of, drive_once, show, text_of

# Sure of a call as long as the model was sure of its tokens.
CALIBRATION = ModelCalibration(right=Calibration(base=2.0, weights={"most_unsure": -2.0}))


class Hesitating(ScriptedTier):
    """Tells what it was unsure of: nothing, or a word of its call; None: it can't tell."""

    hesitates: bool | None = True

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        unsure = None if self.hesitates is None else (("f", 3.0),) * self.hesitates
        async with aclosing(super().stream(request)) as stream:
            async for events in stream:
                yield [replace(one, unsure=unsure) if isinstance(one, Finish) else one for one in events]


def ask(
    *answers: tuple[str, bool | None],
    least: float = 0.5,
    hold: Hold = Hold.ALL,
    calibration: ModelCalibration | None = CALIBRATION,
    forced: bool = False,
    large: Large = at_once,
    content: Any = "hi",
    checked: bool = True,
    form: WantedForm | None = None,
) -> tuple[Run, list[Event]]:
    """Drive one request along a chain: of each tier its scripted answer, and whether it hesitates. Without its tools
    each tier answers in words."""

    tiers: dict[str, ScriptedTier] = {}
    for tier, (name, hesitates) in zip(CHAIN, answers, strict=False):
        call = {"tool_call": {"name": "f", "arguments": {"a": tier}}}
        wide = {"tool_call": {"name": "f", "arguments": {"a": "".join(map(str, range(500)))}}}
        known = {"call": [call], "long": [wide], "said": [{"text": f"I'm {tier}. "}, call]}
        steps = known.get(name) or ANSWERS[name][0]
        script = [{"when": {"has_tools": True}, "answer": steps}, {"answer": [{"text": "I can't do that."}]}]
        tiers[tier] = Hesitating(name=tier, script=script)
        tiers[tier].hesitates = hesitates

    def change(run: Run) -> None:
        show([{"role": "user", "content": content}])(run)
        run.expected = run.expected if checked else replace(run.expected, checks=None, words=())
        run.expected = replace(run.expected, form=form)
        run.limits = replace(run.limits, confidence_min=least)
        run.request = replace(run.request, tool_choice="required" if forced else "auto")

    return drive_once(tiers, change, hold_all=hold is Hold.ALL, calibration=lambda _: calibration, large=large)


def arguments_of(events: list[Event]) -> list[str]:
    return [arguments for _, arguments in calls_of(events)]


@pytest.mark.parametrize(("share", "second"), [(0.1, "standard"), (0.9, "fast")])
def test_a_model_that_is_seldom_right_is_not_asked_again(share: float, second: str) -> None:
    """Law: an invalid call goes to the next tier at once where a valid one would be in doubt."""
    seldom = ModelCalibration(right=CALIBRATION.right.model_copy(update={"share": share}))
    run, events = ask(("invented", None), ("call", False), calibration=seldom)
    assert run.attempts[1].tier == second
    assert run.attempts[0].flaw is Flaw.TOOL_CALL_INVALID
    assert arguments_of(events) == ['{"a": "standard"}']


@pytest.mark.parametrize("hold", Hold)
def test_a_call_in_doubt_is_the_next_tier_s_to_make(hold: Hold) -> None:
    """Law: below the least confidence the next tier is asked, and nothing of the first call leaves."""
    run, events = ask(("call", True), ("call", False), hold=hold)
    assert (run.tier, run.escalation) == ("standard", ("fast", Reason.LOW_CONFIDENCE))
    assert [attempt.flaw for attempt in run.attempts] == [Flaw.DOUBT, None]
    assert arguments_of(events) == ['{"a": "standard"}']
    report = report_of(run)
    assert report["escalation_reason"] == "low_confidence"
    assert report["attempts"][0]["confidence"] == 0.018
    assert report["attempts"][0]["usage"]["total_tokens"] > 0


@pytest.mark.parametrize("after", ["none", "500", "400", "429", "invented", "hang", "cut"])
def test_a_call_in_doubt_is_better_than_none(after: str) -> None:
    """Law: where the next tier has no good answer, the call is delivered, and the report says how likely it is."""
    run, events = ask(("call", True), (after, False))
    assert run.tier == "fast"
    assert arguments_of(events) == ['{"a": "fast"}']
    assert any("a probability of 2%" in note for note in report_of(run)["notes"])


@pytest.mark.parametrize(
    ("hesitates", "least", "calibration"),
    [(False, 0.5, CALIBRATION), (True, 0.0, CALIBRATION), (True, 0.5, None), (None, 0.5, CALIBRATION)],
)
def test_no_doubt_where_nothing_tells(hesitates, least, calibration) -> None:
    """Law: a sure model, a switch that is off, a model without a calibration or that can't tell are asked once."""
    run, _ = ask(("call", hesitates), ("call", False), least=least, calibration=calibration)
    assert (run.tier, len(run.attempts)) == ("fast", 1)
    assert run.attempts[0].good


def test_a_text_is_not_in_doubt_and_the_last_tier_is_believed() -> None:
    """Law: an answer without calls, and one behind which nobody could be asked, is delivered at once."""
    assert ask(("good", True), ("call", False))[0].tier == "fast"
    run, _ = ask(("call", True))
    assert run.attempts[0].confidence.likely == pytest.approx(0.018, abs=0.001)
    assert not run.finish.notes


@pytest.mark.parametrize(("forced", "form"), [(False, None), (True, None), (False, {"type": "json_object"})])
def test_a_call_that_nobody_wanted_is_asked_for_in_words(forced: bool, form: dict[str, Any] | None) -> None:
    """Law: where each call is in doubt, probably unwanted, and words may be the answer, the last tier is asked without
    its tools; the answer has no call. Where a call or another form is demanded, the likeliest one is delivered."""
    unwanted = CALIBRATION.model_copy(update={"unwanted": Calibration(base=-1.0, weights={"most_unsure": 2.0})})
    wanted, words_do = read_wanted_form(form, Steps(1_000)), not forced and form is None
    run, events = ask(("call", True), ("call", True), calibration=unwanted, forced=forced, form=wanted)
    assert [attempt.flaw for attempt in run.attempts] == [Flaw.DOUBT, Flaw.DOUBT] + [None] * words_do
    if words_do:
        assert (arguments_of(events), text_of(events)) == ([], "I can't do that.")
        assert not run.finish.notes
    else:
        assert arguments_of(events) == ['{"a": "standard"}']


@pytest.mark.parametrize("said", [UNWANTED_ALONE_MIN - 0.1, UNWANTED_ALONE_MIN + 0.1])
@pytest.mark.parametrize("after", ["good", "500"])
def test_a_tier_alone_is_asked_in_words_where_its_call_is_probably_unwanted(said: float, after: str) -> None:
    """Law: a tier behind which there is none is believed, unless probably no tool was wanted: then it is asked without
    its tools, once. So it is behind a tier that has failed, and never where confidence is off."""
    likely = ModelCalibration(unwanted=Calibration(base=math.log(said / (1 - said))))
    chain = [("call", False)] if after == "good" else [(after, False), ("call", False)]
    run, events = ask(*chain, calibration=likely)
    assert (calls_of(events) == []) == (said > UNWANTED_ALONE_MIN)
    assert text_of(events) == "I can't do that." * (said > UNWANTED_ALONE_MIN)
    run, events = ask(*chain, calibration=likely, least=0.0)
    assert len(calls_of(events)) == 1
    assert all(attempt.flaw is not Flaw.DOUBT for attempt in run.attempts)


@given(st.lists(st.text(max_size=9), min_size=1, max_size=4))
@example(["Never do Anything in more than 17 steps.", "Book a fast room and a standard one."])
def test_a_request_in_parts_is_read_as_in_one(texts: list[str]) -> None:
    """Law: what a client puts in front of the user's words, as a part of the same message, tells no more of a call than
    in front of them in one text. An image tells nothing."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [image, *({"type": "text", "text": text} for text in texts)]
    (whole, _), (parted, _) = (ask(("call", False), content=content) for content in ("\n".join(texts), parts))
    assert parted.attempts[0].confidence.signs == whole.attempts[0].confidence.signs


@pytest.mark.parametrize("checked", [True, False])
def test_where_calls_are_not_checked_none_is_in_doubt(checked: bool) -> None:
    """Law: with `tool_validation` off nothing is read of the conversation, so nothing is known of calls."""
    values = ModelCalibration(right=Calibration(base=-1.0, weights={"length": 4.0, "made_up_optional": -9.0}))
    run, _ = ask(("call", False), ("call", False), calibration=values, content="a fast one", checked=checked)
    assert run.attempts[0].good
    assert bool(run.attempts[0].confidence.signs) is checked


def repeat(
    *, made: dict[str, Any], nudged: int = 2, tool: str = "f", hesitates: bool = True, before: str = "", **loops: int
) -> tuple[list[str], list[Flaw | None], str | None]:
    """Ask a tier alone, behind a call of `made`, for a call that is {"a": 1} and, once it is nudged, {"a": nudged};
    return the delivered arguments, what was wrong with each answer, and what the report says of a loop. `before`: what
    another call of `made` brought."""
    past = {"name": tool, "arguments": json.dumps(made)}
    history: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]
    for result in filter(None, (before, "7 lamps")):
        history.append({"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": past}]})
        history.append({"role": "tool", "tool_call_id": "c", "content": result})
    answers = [[{"tool_call": {"name": tool, "arguments": {"a": number}}}] for number in (nudged, 1)]
    told = {"when": {"last_user": "You have called this already"}, "answer": answers[0]}
    tier = Hesitating(name="fast", script=[told, {"answer": answers[1]}])
    tier.hesitates = hesitates

    def change(run: Run) -> None:
        show(history, [{"type": "function", "function": {"name": tool, "parameters": {"type": "object"}}}])(run)
        run.limits = replace(run.limits, confidence_min=0.5)
        run.expected = replace(run.expected, loops=LoopConfig(**loops))

    run, events = drive_once({"fast": tier}, change, hold_all=True, calibration=lambda _: CALIBRATION)
    return arguments_of(events), [attempt.flaw for attempt in run.attempts], report_of(run)["loop"]


def test_who_is_unsure_of_a_call_that_it_has_just_made_is_nudged_at_once() -> None:
    """Law: the same call right behind its result, of a model that is unsure of it, is nudged a repetition earlier than
    else, once; who repeats it still is believed. A sure model is, and so is another call; what polls, and where loops
    have other limits, is nudged where those say."""
    assert repeat(made={"a": 1}) == (['{"a": 2}'], [Flaw.LOOP, None], "nudged")
    assert repeat(made={"a": 1}, nudged=1) == (['{"a": 1}'], [Flaw.LOOP, Flaw.LOOP], "nudged")
    at_once = (['{"a": 1}'], [None], None)
    assert repeat(made={"a": 1}, hesitates=False) == at_once
    assert repeat(made={"a": 3}) == at_once
    assert repeat(made={"a": 1}, tool="job_poll") == at_once
    assert repeat(made={"a": 1}, before="5 chairs") == at_once  # as in a list that is read on
    assert repeat(made={"a": 1}, duplicate_threshold=0) == at_once
    assert repeat(made={"a": 1}, enabled=False) == at_once


@pytest.mark.parametrize(("answer", "hesitates"), [("call", True), ("call", None), ("good", True), ("long", True)])
def test_a_call_is_measured_where_its_size_says(answer: str, hesitates: bool | None) -> None:
    """Law: only calls of a tier that can tell are measured, as work of the size of the history and the answer: what is
    short goes nowhere else, a long call leaves the event loop (of 1,390 characters here, each of which counts)."""
    measured: list[int] = []

    async def note(size: int, work: Callable[..., Any], *args: Any) -> Any:
        if getattr(work, "__name__", "") == "measure_confidence":
            measured.append(size)
        return work(*args)

    ask((answer, hesitates), ("call", False), large=note)
    assert bool(measured) == (answer in ("call", "long") and hesitates is not None)
    assert [size > 1_390 for size in measured[:1]] == [answer == "long"] * bool(measured)
    assert all(size <= QUIET_BYTES for size in measured)


names = st.sampled_from(["call", "said", "good", "500", "invented", "none", "break"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(names, st.booleans()), min_size=1, max_size=3), st.sampled_from(list(Hold)))
def test_doubt_chooses_who_answers_and_changes_no_answer(answers: list[tuple[str, bool]], hold: Hold) -> None:
    """Law: the calls are those that the tier which answered makes when it is asked alone, the text that of the first
    which spoke, even where it broke off; and whoever gets an answer without doubts gets one with them."""
    run, events = ask(*answers, hold=hold)
    without, plain = ask(*answers, hold=hold, least=0.0)
    assert (run.finish is None) == (without.finish is None)
    if run.finish is not None:
        assert arguments_of(events) in ([], [f'{{"a": "{run.tier}"}}'])
        spoken = text_of(events)
        own = ("", f"good from {run.tier}", *(f"I'm {attempt.tier}. " for attempt in run.attempts))
        assert spoken in own or spoken == text_of(plain) or spoken.startswith("half of ")
