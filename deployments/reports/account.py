"""The end of a request: its report, its incidents, its numbers, its line in the log.

`close` counts once; it waits for nothing and raises nothing into the request. Metrics appear on Ray's Prometheus
endpoint under `ray_mlx_stack_*`. Labels are values of enums and names of configured tiers, so no client can make a new
time series.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ray.serve import metrics

from deployments.config.tier_cost import Price
from deployments.reports.incidents import incidents_of
from deployments.reports.report import report_of
from deployments.reports.traces import Traces
from deployments.request.judge import Advice
from deployments.request.run_record import Run
from deployments.state.client import RequestState
from deployments.state.incident_record import IncidentKind, record
from deployments.state.records import TurnItem
from deployments.telemetry import log_error, log_request
from reliability.attempt import Attempt
from reliability.escalation.policies import reason_of
from reliability.loops import calls_turn
from reliability.sessions import Answered, describe_answer
from reliability.types import Refusal, Text, TierStatus

_NONE = "none"
_TTFT_MS: list[float] = [10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000]
_INTER_TOKEN_MS: list[float] = [1, 2.5, 5, 10, 20, 35, 50, 75, 100, 200, 500, 1000, 5000]
_OVERHEAD_MS: list[float] = [0.5, 1, 2, 3, 5, 7.5, 10, 20, 50, 100, 500, 2000]
_REQUEST_MS: list[float] = [50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 900_000]


class RequestMetrics:
    """The metrics of one Router replica. Made inside a replica, since Ray's metrics belong to a process."""

    def __init__(self) -> None:
        self._requests = _counter("requests", "Finished requests, by the tier that was asked last.", "outcome", "tier")
        self._attempts = _counter("attempts", "Attempts, by fault and flaw (none: good).", "tier", "fault", "flaw")
        self._escalations = _counter("escalations", "Times that a tier was left for the next one.", "tier", "reason")
        self._repairs = _counter("repairs", "Delivered answers whose calls were repaired, by kind.", "kind")
        self._loops = _counter("loops", "Requests in which a loop was found.", "mark")
        self._tokens = _counter("tokens", "Tokens of attempts, by kind: prompt or completion.", "tier", "kind")
        self._cost = _counter("cost_usd", "Estimated cost of attempts in US dollars.", "tier")
        self._ttft_ms = _histogram("ttft_ms", "From the call to the first piece of the answer.", _TTFT_MS, "tier")
        words = "Time between two tokens, the mean of one attempt."
        self._inter_token_ms = _histogram("inter_token_ms", words, _INTER_TOKEN_MS, "tier")
        self._overhead_ms = _histogram("overhead_ms", "A request's time without its attempts' time.", _OVERHEAD_MS)
        self._request_ms = _histogram("request_ms", "A request's whole time.", _REQUEST_MS, "outcome")

    def count(self, report: Mapping[str, Any], attempts: Sequence[Attempt]) -> None:
        outcome = {"outcome": report["outcome"]}
        self._requests.inc(tags=outcome | {"tier": report["tier"] or _NONE})
        if report["loop"] is not None:
            self._loops.inc(tags={"mark": report["loop"]})
        for kind in report["repairs"]:
            self._repairs.inc(tags={"kind": kind})
        for attempt in report["attempts"]:
            self._count_attempt(attempt)
        for before, after in pairwise(attempts):
            if before.tier != after.tier:
                self._escalations.inc(tags={"tier": before.tier, "reason": reason_of(before).value})
        self._request_ms.observe(report["total_ms"], tags=outcome)
        self._overhead_ms.observe(report["overhead_ms"], tags={})

    def _count_attempt(self, attempt: Mapping[str, Any]) -> None:
        tier = {"tier": attempt["tier"]}
        self._attempts.inc(tags=tier | {"fault": attempt["fault"] or _NONE, "flaw": attempt["flaw"] or _NONE})
        usage = attempt["usage"] or {}
        for kind in ("prompt", "completion"):
            if tokens := usage.get(f"{kind}_tokens", 0):
                self._tokens.inc(tokens, tags=tier | {"kind": kind})
        # A counter takes no zero; a tier that costs nothing has no cost to show.
        if cost_usd := attempt["cost_usd"]:
            self._cost.inc(cost_usd, tags=tier)
        if attempt["ttft_ms"] is not None:
            self._ttft_ms.observe(attempt["ttft_ms"], tags=tier)
            gaps = usage.get("completion_tokens", 0) - 1
            if gaps > 0:
                decoding_ms = max(0, attempt["elapsed_ms"] - attempt["ttft_ms"])
                self._inter_token_ms.observe(decoding_ms / gaps, tags=tier)


def _counter(name: str, words: str, *labels: str) -> metrics.Counter:
    return metrics.Counter(f"mlx_stack_{name}", description=words, tag_keys=labels)


def _histogram(name: str, words: str, boundaries: list[float], *labels: str) -> metrics.Histogram:
    return metrics.Histogram(f"mlx_stack_{name}", description=words, boundaries=boundaries, tag_keys=labels)


@dataclass(slots=True, kw_only=True)
class Account:
    """The account of one request while it runs. `advice`: the auxiliary judge's. `traceparent`: W3C's header."""

    run: Run
    state: RequestState
    started_ns: int
    advice: Advice | None = None
    traceparent: str | None = None
    _report: dict[str, Any] | None = None
    _closed: bool = False

    def report(self, now_ns: int, prices: Mapping[str, Price]) -> dict[str, Any]:
        """Return the whole report, made once, when the outcome is known. No prompt, no answer, no secret."""
        if self._report is None:
            started_ns, total_ns = self.started_ns, now_ns - self.started_ns
            self._report = report_of(
                self.run, advice=self.advice, started_ns=started_ns, total_ns=total_ns, prices=prices
            )
        return self._report

    def close(
        self,
        now_ns: int,
        *,
        prices: Mapping[str, Price],
        statuses: Mapping[str, TierStatus],
        keep_text: bool,
        metrics: RequestMetrics,
        traces: Traces,
    ) -> None:
        """Hand everything over, the first time."""
        if self._closed:
            return
        self._closed = True
        try:
            report = self.report(now_ns, prices)
            incidents = incidents_of(self.run, at_s=time.time(), statuses=statuses, keep_text=keep_text)
            found = [*incidents, *self._record_advice()]
            self.state.finish(report, found, self._find_turn(), self._describe_answer())
            metrics.count(report, self.run.attempts)
            log_request(report)
            declared = bool(self.run.expected.toolbox.tools)
            traces.add(report, statuses=statuses, checked=declared, traceparent=self.traceparent)
        except Exception as error:
            log_error("account_failed", error, request_id=self.run.request.request_id)

    def _record_advice(self) -> list[dict[str, Any]]:
        if self.advice is None:
            return []
        case, request, judge = self.advice.case, self.run.request, self.advice.run
        reason, tier = f"judge_{case.trouble.value}", judge.tier if judge else None
        who = {"request_id": request.request_id, "session": request.session_id, "key": self.run.key, "tier": tier}
        evidence = {"count": case.count, "by": self.advice.by, "injected": self.advice.words is not None}
        return [record(IncidentKind.LOOP, at_s=time.time(), reason=reason, evidence=evidence, **who)]

    def _describe_answer(self) -> Answered | None:
        """Describe what left, by what a later request shows of it; None where not all of it left."""
        judged = self.run.judged
        if self.run.finish is None or judged is None:
            return None
        text = "".join(event.text for event in judged.events if isinstance(event, Text | Refusal))
        turn = calls_turn([(call.name, call.arguments) for call in judged.calls], text)
        return describe_answer(judged.turn or turn, [call.id for call in judged.calls])

    def _find_turn(self) -> TurnItem | None:
        run, expected = self.run, self.run.expected
        if expected.shown is None or run.finish is None or run.judged is None or run.judged.turn is None:
            return None
        session, turn = run.request.session_id, run.judged.turn
        return TurnItem(key=run.key, session=session, turn=turn, request=expected.asked, shown=expected.shown)
