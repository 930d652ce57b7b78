"""The end of a request: handed over once, and never into the request's way."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from deployments.reports import account
from deployments.reports.account import Account
from deployments.reports.report import report_of
from reliability.attempt import Attempt
from reliability.tool_calls import RepairKind
from reliability.types import Fault, Finish, FinishReason, Flaw, Reason, RefuseCode
from tests.support.room_rig import attempt, report
from tests.support.run_values import SLOW, request_of, run_of, runs
from tests.support.small_config import config_of, run


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

    def count(self, report: Any, attempts: Any) -> None:
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
        request_of("hi"), attempts=[attempt], judgements=[None], tier="fast", finish=Finish(reason=FinishReason.STOP)
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


class Recorded:
    """A Ray metric that keeps what it is given. Ray's own is tried in `tests/contract/test_serve.py`."""

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...], boundaries: Any = None) -> None:
        self.name, self.labels, self.seen = name, tag_keys, []

    def inc(self, value: float = 1.0, tags: Any = None) -> None:
        assert value > 0
        self.observe(value, tags)

    def observe(self, value: float, tags: Any = None) -> None:
        assert set(tags) == set(self.labels)
        self.seen.append((tags, value))


Count = Callable[..., dict[str, list[Any]]]


def counting(patch: pytest.MonkeyPatch) -> Count:
    """Count a report, and return what each metric was given."""
    made: list[Recorded] = []

    def make(name: str, **keys: Any) -> Recorded:
        made.append(Recorded(name, **keys))
        return made[-1]

    patch.setattr(account.metrics, "Counter", make)
    patch.setattr(account.metrics, "Histogram", make)
    one = account.RequestMetrics()

    def count(report: Any, attempts: Any = ()) -> dict[str, list[Any]]:
        for metric in made:
            metric.seen.clear()
        one.count(report, attempts)
        return {metric.name.removeprefix("mlx_stack_"): list(metric.seen) for metric in made}

    return count


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Count:
    return counting(monkeypatch)


KNOWN = {
    "outcome": {"answered", "client_left", *RefuseCode},
    "fault": {"none", *Fault},
    "flaw": {"none", *Flaw},
    "reason": set(Reason),
    "mark": {"nudged", "broken", "detected"},
    "kind": {"prompt", "completion", *RepairKind},
}


@SLOW
@given(runs())
def test_labels_are_bounded_whatever_a_request_met(run):
    """Every label value is one of a closed set or the name of a tier that was asked, and all is counted once."""
    run.chain = tuple(attempt.tier for attempt in run.attempts) or run.chain
    with pytest.MonkeyPatch.context() as patch:
        seen = counting(patch)(report_of(run), run.attempts)
    known = KNOWN | {"tier": {"none", *(attempt.tier for attempt in run.attempts)}}

    for recorded in seen.values():
        for tags, value in recorded:
            assert value >= 0
            assert all(tag in known[label] for label, tag in tags.items())
    assert len(seen["requests"]) == 1
    assert len(seen["attempts"]) == len(run.attempts)


def test_a_report_of_the_server_is_counted(counted):
    """The real report of a request that was retried and moved on: attempts, the escalation, and nothing else."""
    one = run(config_of("tiers.fast.script", [{"answer": [{"status": 500}]}]))
    seen = counted(report_of(one) | {"total_ms": 12.5, "overhead_ms": 1.5}, one.attempts)

    assert seen["requests"] == [({"outcome": "answered", "tier": "standard"}, 1.0)]
    assert [tags["tier"] for tags, _ in seen["attempts"]] == [a.tier for a in one.attempts]
    assert seen["escalations"] == [({"tier": "fast", "reason": "server_error"}, 1.0)]
    assert seen["request_ms"] == [({"outcome": "answered"}, 12.5)]
    assert seen["overhead_ms"] == [({}, 1.5)]
    assert seen["loops"] == seen["repairs"] == seen["cost_usd"] == []


def test_times_tokens_and_money_of_an_attempt(counted):
    """Eleven tokens in 600 ms of which 100 passed before the first: 50 ms between two."""
    usage = {"prompt_tokens": 7, "completion_tokens": 11}
    one = attempt(elapsed_ms=600, ttft_ms=100, usage=usage, cost_usd=0.25)
    seen = counted(report(loop="nudged", repairs=["name"], attempts=[one]))
    tier = {"tier": "fast"}

    assert seen["inter_token_ms"] == [(tier, 50.0)]
    assert seen["ttft_ms"] == [(tier, 100)]
    assert seen["tokens"] == [(tier | {"kind": "prompt"}, 7), (tier | {"kind": "completion"}, 11)]
    assert seen["cost_usd"] == [(tier, 0.25)]
    assert seen["loops"] == [({"mark": "nudged"}, 1.0)]
    assert seen["repairs"] == [({"kind": "name"}, 1.0)]
    one_token = one | {"usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    assert counted(report(attempts=[one_token]))["inter_token_ms"] == []
