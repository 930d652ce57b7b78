"""Answers that nobody has time to judge: the workers are busy, or the request's deadline comes first."""

import asyncio
from typing import Any

import pytest

from deployments.work import worker_pool
from deployments.work.worker_pool import Busy
from reliability.escalation.refusals import verdict_of
from reliability.types import Fault, RefuseCode, Verdict
from tests.support.driving import ANSWERS, CHAIN, calls_of, drive_once, scripted


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
