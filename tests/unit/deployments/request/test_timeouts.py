"""A tier that falls silent is left for the next one, also where it breaks off before its own timeout has struck: asked
again, it would cost as much time once more."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from deployments.config.tier_config import Timeouts
from deployments.request.attempt import NOT_TAKEN
from deployments.request.run_record import Run
from deployments.request.timeouts import _convert_stall
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability import types
from reliability.escalation.refusals import verdict_of
from reliability.faults import TRAITS, Again
from reliability.types import ChatRequest, Event, Failed, Fault, Finish, FinishReason, Reason, Started, Text, Verdict
from tests.sim.clock import VirtualClock
from tests.support.driving import drive_once, scripted
from tests.support.readings import reading

TIMEOUTS = Timeouts(connect_s=5, first_token_s=20, idle_s=10, total_s=100)
BREAKS: dict[str, dict[str, Any]] = {"cut": {"cut": True}, "error": {"status": 502}, "protocol": {"fault": "protocol"}}


def walked(fast: ScriptedTier, *, retries: int = 3, deadline_s: int = 300) -> tuple[Run, float]:
    """One request that shows nothing before it is judged, with another tier behind `fast`, and how long its attempts
    took."""

    tiers = {"fast": fast} | scripted({"standard": [{"answer": "good"}]})

    def change(run: Run) -> None:
        run.deadline_ns = VirtualClock().now_ns() + deadline_s * 10**9

    run, _ = drive_once(tiers, change, hold_all=True, retries=retries, timeouts=dict.fromkeys(tiers, TIMEOUTS))
    return run, sum(attempt.elapsed_ns for attempt in run.attempts) / 1e9


@pytest.mark.parametrize("how", BREAKS)
@pytest.mark.parametrize(
    ("first", "silent_s", "fault"),
    [
        ([{"text": "half "}], 9.9, Fault.IDLE_TIMEOUT),
        ([{"text": "half "}], 5.1, Fault.IDLE_TIMEOUT),
        ([], 19.0, Fault.FIRST_TOKEN_TIMEOUT),
    ],
)
def test_who_breaks_off_after_a_silence_has_stalled(how, first, silent_s, fault):
    """An upstream's own timeout, or a proxy's, may ring before ours: it is the timeout that it nearly was, and the same
    tier isn't asked again."""
    steps = [*first, *([] if first else [{"text": "", "delay_s": 0}]), BREAKS[how] | {"delay_s": silent_s}]
    run, took_s = walked(ScriptedTier(name="fast", script=[{"answer": steps}]))

    assert [a.tier for a in run.attempts] == ["fast", "standard"]
    assert run.attempts[0].fault is fault
    assert "of silence" in run.attempts[0].detail
    assert took_s < silent_s + 1


@pytest.mark.parametrize("how", BREAKS)
def test_who_breaks_off_at_once_is_asked_again(how):
    """A short silence is none."""
    steps = [{"text": "half "}, BREAKS[how] | {"delay_s": 2.0}]
    run, _ = walked(ScriptedTier(name="fast", script=[{"answer": steps}]), retries=2)

    assert [a.tier for a in run.attempts] == ["fast", "fast", "fast", "standard"]
    assert run.attempts[0].fault not in (Fault.IDLE_TIMEOUT, Fault.FIRST_TOKEN_TIMEOUT)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("phase", ["connect_s", "first_token_s", "idle_s"])
def test_only_what_would_be_asked_again_is_a_stall(fault, phase):
    """What a tier says late is still what it says: a full queue, a prompt that is too long. Before it has taken the
    request there is no silence of its own."""
    end = Failed(fault=fault, message="x")
    stalled = _convert_stall(end, phase, 30 * 10**9, TIMEOUTS)
    again = TRAITS[fault].again is Again.RETRY or fault is Fault.DEADLINE

    assert (stalled is not end) == (again and phase != "connect_s")
    assert stalled is end or TRAITS[stalled.fault].reason is Reason.TIMEOUT
    assert _convert_stall(end, phase, 1, TIMEOUTS) is end


@pytest.mark.parametrize(
    ("steps", "deadline_s", "verdict"),
    [
        ([{"silence": True}], 9, Verdict.IGNORED),
        ([{"silence": True}], 11, Verdict.FAILURE),
        ([{"text": "word "}, {"silence": True}], 4, Verdict.IGNORED),
        ([{"text": "word "}, {"silence": True}], 6, Verdict.FAILURE),
        ([{"text": "word " * 500, "token_delay_s": 1}], 50, Verdict.IGNORED),
    ],
)
def test_a_short_deadline_says_nothing_of_a_tier(steps, deadline_s, verdict):
    """Law: a client's own deadline feeds no breaker, unless the tier was silent for half of its own timeout: else one
    API key could open the breakers of tiers that are well for all others, by a header."""
    run, _ = walked(ScriptedTier(name="fast", script=[{"answer": steps}]), deadline_s=deadline_s)

    assert verdict_of(run.attempts[0]) is verdict
    assert run.refusal.code is types.RefuseCode.DEADLINE


@pytest.mark.parametrize("text", ["", "half "])
def test_a_stream_that_is_cancelled_by_its_timeout_has_timed_out(text):
    """Whatever it says when it is cancelled: that its connection broke is our doing."""

    class Talkative(ScriptedTier):
        async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
            yield [Started(), *([Text(text)] if text else [])]
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                yield [Failed(fault=Fault.CRASHED, message="the connection broke", lost=True)]

    run, _ = walked(Talkative(name="fast", script=[]))

    assert [a.tier for a in run.attempts] == ["fast", "standard"]
    assert run.attempts[0].fault is (Fault.IDLE_TIMEOUT if text else Fault.FIRST_TOKEN_TIMEOUT)


@pytest.mark.parametrize(("steps", "fault"), [(8, None), (12, Fault.CONNECT_TIMEOUT)])
def test_a_stall_of_this_process_is_none_of_the_tiers(steps, fault):
    """Law: `connect_s` counts only the time in which the Router has its turns: where a busy machine stalls it, the tier
    has not refused anything, and no breaker opens. A tier that doesn't take the request still fails."""

    class Takes(ScriptedTier):
        async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
            loop: Any = asyncio.get_running_loop()
            for _ in range(steps):
                loop.now_s += 4  # the process has no turn
                await asyncio.sleep(TIMEOUTS.connect_s / 10)
            yield [Started(), Text("word"), Finish(reason=FinishReason.STOP)]

    run, took_s = walked(Takes(name="fast", script=[]))

    assert run.attempts[0].fault is fault
    assert took_s < 4 * steps + TIMEOUTS.connect_s + 1


def test_a_replica_that_dies_late_is_no_stall():
    """Its process was killed while it read a long prompt: another replica may be asked."""

    class Dies(ScriptedTier):
        async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
            yield [Started()]
            await asyncio.sleep(18)
            yield [Failed(fault=Fault.CRASHED, message="its replica died", lost=True)]

    run, _ = walked(Dies(name="fast", script=[]), retries=1)

    assert [a.tier for a in run.attempts] == ["fast", "fast", "standard"]


class Reading(ScriptedTier):
    """Reads a prompt for as many seconds of the virtual clock as it may take, and then answers."""

    seconds, speed = 1000, 1

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        yield [Started()]
        for second in range(self.seconds):
            await asyncio.sleep(1)
            yield [types.Prefilled(tokens=second * self.speed, of_tokens=1000, left_s=1.0)]
        yield [Text("word"), Finish(reason=FinishReason.STOP)]


@pytest.mark.parametrize(
    ("seconds", "speed", "fault"),
    [(90, 1, None), (90, 0, Fault.FIRST_TOKEN_TIMEOUT), (1000, 1, Fault.TOTAL_TIMEOUT)],
)
def test_where_no_tier_is_behind_a_prompt_that_is_read_on_is_waited_for(seconds, speed, fault):
    """Law: at the end of the chain `first_token_s` bounds the time without progress, and `total_s` all of it: a client
    that is refused sends the same prompt again, and another tier there isn't."""
    tier = Reading(name="fast", script=[])
    tier.seconds, tier.speed = seconds, speed

    def allow_time(run: Run) -> None:
        run.deadline_ns = VirtualClock().now_ns() + 300 * 10**9

    run, events = drive_once({"fast": tier}, allow_time, retries=0, timeouts={"fast": TIMEOUTS})

    assert [attempt.fault for attempt in run.attempts] == [fault]
    assert any(isinstance(event, Text) for event in events) is (fault is None)


def test_a_report_of_prefill_stops_no_timeout():
    """Law: with another tier behind, `first_token_s` runs from the tier's start to the first piece of the answer,
    prefill included; what was read last is known meanwhile."""

    run, took_s = walked(Reading(name="fast", script=[]))

    assert [a.tier for a in run.attempts] == ["fast", "standard"]
    assert run.attempts[0].fault is Fault.FIRST_TOKEN_TIMEOUT
    assert took_s < TIMEOUTS.first_token_s + 1


def test_how_far_a_prompt_is_read_is_known_until_the_first_token():
    """Also where the report comes with the first token; before a replica has taken the request it waits for one."""
    waits, state = reading(100, events=()).prefilling, reading(100)
    begun = state.prefilling
    state.note_prefill(types.Prefilled(tokens=1, of_tokens=9, left_s=8.0))
    known = state.prefilling
    out = state.look([types.Prefilled(tokens=8, of_tokens=9, left_s=1.0), Text("word")], 5)

    assert (waits, begun) == (NOT_TAKEN, None)
    assert (known and known.tokens, out, state.prefilling) == (1, [Text("word")], None)
