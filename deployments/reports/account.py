"""The end of a request: its report, its incidents, its numbers, its line in the log.

However a request ended, `close` is called once, when nothing more will be sent. It waits for nothing and raises nothing
into the request.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deployments.config.tier_cost import Price
from deployments.reports.incidents import incidents_of
from deployments.reports.report import report_of
from deployments.reports.request_metrics import RequestMetrics
from deployments.reports.traces import Traces
from deployments.request.judge import Advice
from deployments.request.run_record import Run
from deployments.state.client import RequestState
from deployments.state.incident_record import IncidentKind, record
from deployments.state.records import TurnItem
from deployments.telemetry import log_error, log_request
from reliability.loops import calls_turn
from reliability.sessions import Answered, describe_answer
from reliability.types import Refusal, Text, TierStatus


@dataclass(slots=True, kw_only=True)
class Account:
    """The account of one request while it runs. `advice`: the auxiliary judge's, where it was asked. `traceparent`: the
    client's span that it belongs to, as W3C's header names it."""

    run: Run
    state: RequestState
    started_ns: int
    advice: Advice | None = None
    traceparent: str | None = None
    _report: dict[str, Any] | None = None
    _closed: bool = False

    def report(self, now_ns: int, prices: Mapping[str, Price]) -> dict[str, Any]:
        """Return the whole report, JSON-ready, made once, when the outcome is known. No prompt, no answer, no
        secret."""
        if self._report is None:
            self._report = report_of(
                self.run,
                advice=self.advice,
                started_ns=self.started_ns,
                total_ns=now_ns - self.started_ns,
                prices=prices,
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
            incidents = incidents_of(
                self.run, at_s=time.time(), key=self.run.key, statuses=statuses, keep_text=keep_text
            )
            found = [*incidents, *self._record_advice()]
            self.state.finish(report, found, self._find_turn(), self._describe_answer())
            metrics.count(report)
            log_request(report)
            declared = bool(self.run.expected.toolbox.tools)
            traces.add(report, statuses=statuses, checked=declared, traceparent=self.traceparent)
        except Exception as error:
            log_error("account_failed", error, request_id=self.run.request.request_id)

    def _record_advice(self) -> list[dict[str, Any]]:
        if self.advice is None:
            return []
        case, request = self.advice.case, self.run.request
        evidence = {"count": case.count, "by": self.advice.by, "injected": self.advice.words is not None}
        made = record(
            IncidentKind.LOOP,
            at_s=time.time(),
            reason=f"judge_{case.trouble.value}",
            request_id=request.request_id,
            session=request.session_id,
            key=self.run.key,
            tier=self.advice.run.tier if self.advice.run else None,
            evidence=evidence,
        )
        return [made]

    def _describe_answer(self) -> Answered | None:
        """Describe what left, by what a later request shows of it; None where it didn't leave, or not all of it."""
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
        return TurnItem(
            key=run.key,
            session=run.request.session_id,
            turn=run.judged.turn,
            request=expected.asked,
            shown=expected.shown,
        )
