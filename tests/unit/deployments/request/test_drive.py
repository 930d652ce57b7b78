"""The one loop over every fault, with scripted tiers and no server."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deployments.config.tier_config import Timeouts
from deployments.reports.report import report_headers, report_of
from deployments.request.drive import drive
from deployments.request.interfaces import MonotonicClock
from deployments.request.run_record import Run
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from deployments.work import worker_pool
from deployments.work.worker_pool import Busy
from reliability.admission.admit import AdmissionConfig
from reliability.attempt import Attempt
from reliability.escalation.refusals import verdict_of
from reliability.types import CallDelta, Event, Fault, Finish, FinishReason, Flaw, Reason, RefuseCode, Verdict
from tests.sim.clock import VirtualClock
from tests.support import driving
from tests.support.driving import ANSWERS, CALL, CHAIN, calls_of, drive_once, say, scripted, text_of


def run_once(names: tuple[str, ...], *, hold_all: bool, retries: int = 1) -> tuple[Run, list[Event]]:
    """Drive one request; tier i of the chain answers with `ANSWERS[names[i]]` each time."""
    tiers = scripted({t: [{"answer": ANSWERS[n][0]}] for t, n in zip(CHAIN, names, strict=False)})
    return drive_once(tiers, hold_all=hold_all, retries=retries)


@pytest.mark.parametrize(("trouble", "why"), [("", ""), ("the disk is full", " (the disk is full)")])
def test_a_ledger_that_is_shut_says_why(trouble, why):
    """A tier that costs money isn't called without a grant; its client is told what keeps the ledger shut."""
    shut = driving.Listening(VirtualClock(), AdmissionConfig())
    shut.silence, shut.trouble = 1.0, trouble
    run, _ = drive_once(scripted({"premium": [{"answer": ANSWERS["good"][0]}]}), admission=shut, cloud={"premium"})

    told = f"tier premium costs money, and the ledger can't be asked now{why}: come back in 2 s"
    assert [(attempt.fault, attempt.detail) for attempt in run.attempts] == [(Fault.STATE_SILENT, told)]


@pytest.mark.parametrize(
    ("answers", "extra"),
    [
        (["500", "good"], [False, True]),
        (["bad-call", "call"], [False, False]),
        (["invented", "500", "call"], [False, False, True]),
        (["cut", "invented", "call"], [False, True, False]),
    ],
)
def test_only_what_follows_a_fault_is_extra(answers, extra):
    """Law: a second try after a fault may storm a tier that dies; a correction of what a well tier has answered
    doesn't, and is neither extra nor a first call, which would allow further ones."""
    tiers, _ = driving.tell_in_turn(("fast",), [ANSWERS[name][0] for name in answers])
    heard = driving.Listening(VirtualClock(), AdmissionConfig())
    run, _ = drive_once(tiers, retries=3, admission=heard)

    assert run.finish is not None
    assert [request.extra for request in heard.requests] == extra
    assert [request.fallback for request in heard.requests] == [False, *(not each for each in extra[1:])]


@pytest.mark.parametrize("hold_all", [True, False])
@pytest.mark.parametrize(
    ("name", "text", "calls"), [("mark", "", 0), ("mark-good", "Good words", 0), ("mark-call", "", 1)]
)
def test_the_marks_of_a_template_are_no_words(name, text, calls, hold_all):
    """A turn that is opened again is no part of the answer, streamed or not, and marks alone are no answer."""
    run, events = run_once((name,), hold_all=hold_all, retries=0)

    assert text_of(events) == text
    assert sum(isinstance(event, CallDelta) for event in events) == calls
    assert (run.finish is None) == (name == "mark")


names = st.lists(st.sampled_from(sorted(ANSWERS)), min_size=1, max_size=3).map(tuple)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names)
@example(("chant", "400"))
@example(("chant", "none"))
@example(("chant", "500", "400"))
def test_a_client_that_does_not_stream_gets_an_answer_if_any_tier_has_one(names):
    """Nothing has left, so every break is mended, whatever a tier says of the request."""
    run, _ = run_once(names, hold_all=True)
    good = any(ANSWERS[name][1] for name in names)

    assert (run.finish is not None) == good


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names, st.booleans())
def test_the_report_tells_the_truth(names, hold_all):
    """Headers and report agree with what happened: who answered, where it started, how many calls ran."""
    run, _ = run_once(names, hold_all=hold_all)
    headers, report = report_headers(run), report_of(run)
    ran = sum(a.ran for a in run.attempts)
    cycles = [a.tier for a in run.attempts if a.flaw is Flaw.CYCLE]
    answered_by = cycles[-1] if run.finish and not run.attempts[-1].good else run.attempts[-1].tier

    assert headers["X-MLX-Stack-Retries"] == str(max(0, ran - 1)) == str(report["retries"])
    assert headers["X-MLX-Stack-Tier"] == answered_by == report["tier"]
    assert ("X-MLX-Stack-Escalated-From" in headers) == (run.tier != "fast")
    assert len(report["attempts"]) == len(run.attempts)
    assert orjson.dumps(report)


FAULTS = {"hang": Fault.FIRST_TOKEN_TIMEOUT, "stall": Fault.IDLE_TIMEOUT, "cut": Fault.CRASHED, "429": Fault.OVERLOADED}


@pytest.mark.parametrize(("name", "fault"), FAULTS.items())
def test_each_break_is_written_down_as_what_it_is(name, fault):
    """The record of an attempt names its fault, and the next tier answers."""
    run, events = run_once((name, "good"), hold_all=True)

    assert run.attempts[0].fault is fault
    assert text_of(events) == "good from standard"


def test_calls_leave_whole_and_last():
    """The parts of a call are held until the attempt has ended well; the finish reason says so."""
    run, events = run_once(("call",), hold_all=False)

    assert [type(e) for e in events][-1] is CallDelta
    assert run.finish == Finish(reason=FinishReason.TOOL_CALLS, usage=run.finish.usage, model=run.finish.model)
    assert run.attempts[0].calls_out
    assert run.attempts[0].text_out


def test_a_text_that_runs_in_circles_is_cut_and_marked():
    """Where no tier does better the client gets what was worth keeping, with the finish reason `length`."""
    run, events = run_once(("chant",), hold_all=True)

    assert text_of(events).startswith("It begins. And it goes on like this. ")
    assert text_of(events).count("And") == 2
    assert run.finish.reason is FinishReason.LENGTH
    assert report_headers(run)["X-MLX-Stack-Loop"] == "broken"
    _, events = run_once(("chant", "good"), hold_all=True)
    assert text_of(events) == "good from standard"


def test_a_broken_call_in_a_text_that_is_cut_short_never_leaves():
    """What is delivered of a text in circles is its prose: neither a native call nor a written one stands in it."""
    chant = "And it goes on like this. " * 500
    for broken in ({"tool_call": {"name": "g", "arguments": {}}}, {"raw": '<tool_call>{"name": "g", }</tool_call> '}):
        ANSWERS["broken"] = ([broken, {"text": chant}], True)
        _, events = run_once(("broken",), hold_all=True)

        assert "tool_call" not in text_of(events)
        assert not any(isinstance(event, CallDelta) for event in events)
    del ANSWERS["broken"]


@pytest.mark.parametrize("name", ["think-cut", "lead-cut", "lead-blank", "lead-invented", "json-chant", "half"])
def test_what_says_nothing_commits_nothing(name):
    """Thoughts, white space before the first word, and what was held as a possible call until the end, are not the text
    commit point: where the attempt isn't good enough, the next tier's answer is the answer, in a stream as well."""
    run, events = run_once((name, "good"), hold_all=False, retries=0)

    assert text_of(events) == "good from standard"
    assert run.finish is not None
    assert not run.attempts[0].text_out


@pytest.mark.parametrize("word", ["Good.", "{"])
def test_white_space_leaves_with_the_first_word(word):
    """Nothing of a good answer is lost: what it begins with stands before its first word, whether that left at once or
    was held to the end."""
    ANSWERS["lead-good"] = ([{"raw": "\n"}, {"raw": " \n"}, {"raw": word}], True)
    _, events = run_once(("lead-good",), hold_all=False)
    del ANSWERS["lead-good"]

    assert text_of(events) == f"\n \n{word}"


def test_a_tier_that_ignores_its_cap_is_stopped_there():
    """The cap on one answer binds an upstream that doesn't know it: its stream is closed, the answer says `length`, and
    what is settled is an estimate of what was written."""

    words = " ".join(f"{random.Random(i).getrandbits(64):x}" for i in range(2000))
    tiers, _ = driving.tell_in_turn(["fast"], [[{"raw": words}]], obeys=False)

    def cap(run: Run) -> None:
        run.request = replace(run.request, max_tokens=100)

    run, events = drive_once(tiers, cap)

    assert run.finish.reason is FinishReason.LENGTH
    assert not run.finish.usage.exact
    assert 100 <= run.finish.usage.completion_tokens <= 1000
    assert 1000 < len(text_of(events)) < 2500


@pytest.mark.parametrize("hold_all", [False, True])
@pytest.mark.parametrize(
    ("tag", "told", "before"),
    [
        ("tool_response", "no tool has given", ""),
        ("tool_response", "no tool has given", "I look. \n"),
        ("system-reminder", "words of the user's side", ""),
    ],
)
def test_a_model_that_gives_itself_a_tool_s_result_is_asked_for_the_call(tag, told, before, hold_all):
    """Law: nothing of the result leaves, the model is told to call, and its call does. An answer that begins with a
    result is closed there. The same holds for what agents add to the user's turn: Qwen2.5-Coder 1.5B wrote Claude
    Code's reminder and the user's next question, turn after turn."""
    result = f"<{tag}>\n" + "".join(f"{line}: made up\n" for line in range(100)) + f"</{tag}>"
    tiers, asked = driving.tell_in_turn(["fast"], [say(before + result), [CALL]])

    run, events = drive_once(tiers, hold_all=hold_all)

    assert calls_of(events) == [("f", '{"a": 1}')]
    assert "made up" not in text_of(events)
    assert told in str(asked[1].messages[-1]["content"])
    assert len(asked[1].messages) == (3 if before else 2)  # its own words are shown, a result at their head isn't
    first = run.attempts[0]
    assert first.flaw is Flaw.TOOL_CALL_INVALID
    assert (first.usage.completion_tokens < 50) is not bool(before)


async def test_a_reader_that_leaves_is_written_down():
    """Closing the generator closes the tier's stream; the attempt says cancelled, and neither good nor a fault."""
    tier = ScriptedTier(name="fast", script=[{"answer": "one two three four", "token_delay_s": 0.01}])
    clock = MonotonicClock()
    run = driving.make_run(("fast",), clock)
    events = drive(run, driving.make_ports({"fast": tier}, clock))
    await anext(events)
    assert tier.active == 1
    await events.aclose()
    assert tier.active == 0

    assert [(a.cancelled, a.good, a.fault) for a in run.attempts] == [(True, False, None)]
    assert report_of(run)["outcome"] == "client_left"


@pytest.mark.parametrize(("total_s", "ended"), [(900, 30), (10, 10)])
def test_a_request_ends_at_its_deadline_and_an_attempt_at_its_total(total_s, ended):
    """However well a tier talks, its total timeout ends the attempt and the request's own deadline ends everything."""
    tiers = scripted({"fast": [{"answer": "word " * 500, "token_delay_s": 1.0}]})
    generous = Timeouts(connect_s=9, first_token_s=9, idle_s=9, total_s=total_s)
    run, _ = drive_once(tiers, hold_all=True, timeouts={"fast": generous})

    assert run.refusal.code is (RefuseCode.DEADLINE if total_s > 30 else RefuseCode.TIMEOUT)
    assert run.attempts[0].fault is (Fault.DEADLINE if total_s > 30 else Fault.TOTAL_TIMEOUT)
    assert run.attempts[0].elapsed_ns / 1e9 == pytest.approx(ended, abs=0.1)


def test_the_reason_is_what_was_wrong_not_that_no_second_try_was_left():
    """Where the retry budget holds the second call back, the request left its tier for what it had answered."""
    run = driving.make_run(CHAIN[:2], MonotonicClock())
    run.attempts = [
        Attempt(tier=CHAIN[0], ran=True, flaw=Flaw.TOOL_CALL_INVALID),
        Attempt(tier=CHAIN[0], ran=False, fault=Fault.RETRY_BUDGET),
        Attempt(tier=CHAIN[1], ran=True),
    ]
    run.tier = CHAIN[1]

    assert run.escalation == (CHAIN[0], Reason.TOOL_VALIDATION_FAILURE)


async def busy(*_: Any, **__: Any) -> Any:
    raise Busy("this server is busy with other large requests")


async def hang(*_: Any, **__: Any) -> Any:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    ("worker", "hold_all", "fault", "code"),
    [
        (busy, True, Fault.UNJUDGED, RefuseCode.OVERLOADED),
        (busy, False, Fault.UNJUDGED, RefuseCode.BROKEN_STREAM),
        (hang, True, Fault.DEADLINE, RefuseCode.DEADLINE),
        (hang, False, Fault.DEADLINE, RefuseCode.BROKEN_STREAM),
    ],
)
def test_an_answer_that_nobody_has_time_to_check_is_nobody_s_fault(monkeypatch, worker, hold_all, fault, code):
    """Law: busy workers end the request, which may be sent again, and no call leaves unchecked; the tier isn't blamed,
    its answer has no flaw, and no other tier is asked, whose answer would wait as long."""
    monkeypatch.setattr(worker_pool, "STEPS_INLINE", 0)

    tiers = scripted({tier: [{"answer": ANSWERS["call"][0]}] for tier in CHAIN})
    run, events = drive_once(tiers, hold_all=hold_all, elsewhere=worker)

    assert (run.finish, run.refusal.code) == (None, code)
    assert "the answer of tier fast could not be checked: " in run.refusal.message
    assert calls_of(events) == []
    (attempt,) = run.attempts
    assert (attempt.fault, attempt.flaw, attempt.calls_held) == (fault, None, False)
    assert verdict_of(attempt) is Verdict.IGNORED
    assert attempt.usage.completion_tokens > 0
