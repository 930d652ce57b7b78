"""The end of a request: handed over once, and never into the request's way."""

from __future__ import annotations

from typing import Any

import pytest

from deployments.reports.account import Account
from reliability.types import Attempt, Finish, FinishReason
from tests.support.run_values import request_of, run_of


class Taking:
    """The state and the metrics: they write down what they are given, or raise."""

    def __init__(self, *, broken: bool) -> None:
        self.broken = broken
        self.finished: list[tuple[Any, ...]] = []
        self.counted: list[Any] = []
        self.traced: list[Any] = []

    def finish(self, *given: Any) -> None:
        self.finished.append(given)
        if self.broken:
            raise RuntimeError("the state is gone")

    def count(self, report: Any) -> None:
        self.counted.append(report)

    def add(self, report: Any, **given: Any) -> None:
        self.traced.append((report, given["traceparent"], given["checked"]))


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("times", [1, 3])
def test_a_request_is_handed_over_once(times, broken):
    """Law: however often it is closed: one report to the state and the same one to the metrics; where the state raises,
    the request doesn't hear of it."""
    attempt = Attempt(tier="fast", ran=True, elapsed_ns=0)
    run = run_of(
        request_of("hi"),
        attempts=[attempt],
        judgements=[None],
        tier="fast",
        finish=Finish(reason=FinishReason.STOP),
    )
    taking: Any = Taking(broken=broken)
    account = Account(run=run, state=taking, started_ns=0, traceparent="00-a-b-01")
    for now_ns in range(times):
        account.close(5_000_000 + now_ns, prices={}, statuses={}, keep_text=False, metrics=taking, traces=taking)

    assert len(taking.finished) == 1
    report, incidents, *_ = taking.finished[0]
    assert taking.counted == ([] if broken else [report])
    assert taking.traced == [(report, "00-a-b-01", True) for report in taking.counted]
    assert account.report(9_000_000, {}) is report
    assert incidents == []
