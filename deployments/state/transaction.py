"""One step of the state actor: items and requests through the reducer, and into the journal, as one transaction.

The actor takes the state over only after the commit. A step that can't be written would be sent again for ever, so a
count of tokens that can't be is bounded here, and a report or incident that is no JSON is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from deployments.state.idempotent_answers import KeptItem
from deployments.state.incident_record import IncidentKind, record
from deployments.state.journal import UNWRITABLE, Journal
from deployments.state.records import (
    AnswerItem,
    IncidentItem,
    Item,
    ReportItem,
    SettlementItem,
    StepAnswer,
    StepRequest,
    TurnItem,
)
from reliability.admission import admit as admission
from reliability.admission import events as replay
from reliability.admission.admit import AdmissionConfig, AdmissionState
from reliability.admission.events import Admit, Begin, Charge, Event, Progress, Settlement
from reliability.admission.request import ClosedGrant, Grant
from reliability.types import Usage, Verdict

LOG = logging.getLogger("ray.serve")
_NOTHING_SPENT = Usage()
_TOKENS_MAX = 10**12  # of one call: beyond it a tier's count is nonsense, and SQLite's integers end


class Transaction:
    """The transition of one step. `turns`: what goes into the windows of sessions, in memory. `now_ns`: of the clock of
    budgets and breakers; `now_s`: of the wall clock, for records."""

    def __init__(
        self, state: AdmissionState, config: AdmissionConfig, journal: Journal, now_ns: int, now_s: float
    ) -> None:
        self.state = state
        self.turns: list[TurnItem] = []
        self._config = config
        self._journal = journal
        self._now_ns = now_ns
        self.now_s = now_s
        self.events = 0  # written so far

    def begin(self, incarnation: str, aside: str | None) -> None:
        """Begin a new incarnation. `aside`: the name of an unreadable journal, whose budgets are forgotten."""
        self.apply(Begin(incarnation))
        if aside is not None:
            self.note(IncidentKind.JOURNAL, None, reason="unreadable", evidence={"put_aside": aside})

    def apply_items(self, items: Sequence[Item]) -> None:
        for item in items:
            match item:
                case SettlementItem():
                    self._settle(item)
                case Progress() | Charge():
                    self.apply(replace(item, tokens=min(item.tokens, _TOKENS_MAX)))
                case TurnItem():
                    self.turns.append(item)
                case AnswerItem() | KeptItem():
                    pass  # no part of the journal: the actor follows conversations, and keeps answers, in memory
                case ReportItem(key=key, report=report, incidents=incidents):
                    self._record(self._journal.write_report, key, report, self.now_s)
                    for incident in incidents:
                        self._record(self._journal.write_incident, incident)
                case IncidentItem(incident=incident):
                    if not self._journal.knows_incident(incident):
                        self._record(self._journal.write_incident, incident)

    def admit(self, requests: Sequence[StepRequest]) -> list[StepAnswer]:
        """Decide what may run. Only a grant is written: a rejection changes nothing that time wouldn't."""
        answers = []
        for each in requests:
            after, decision = admission.admit(self.state, self._config, each.admission, self._now_ns)
            if isinstance(decision, Grant):
                self._write(Admit(each.admission))
                self.state = after
            answers.append(StepAnswer(decision=decision))
        return answers

    def settle_unused(self, grants: Sequence[str]) -> None:
        """Settle the grants of an answer that never arrived."""
        for name in grants:
            self.apply(Settlement(name, Verdict.IGNORED, _NOTHING_SPENT))

    def apply(self, event: Event) -> Any:
        """Apply one event that changes the state; return the reducer's result."""
        before = self.state
        self.state, answer = replay.reduce(before, self._config, event, self._now_ns)
        if self.state is not before:
            self._write(event)
        return answer

    def expire(self) -> None:
        """Close what was never settled. Must come first: any later event would close it without a record."""
        held = self.state.budget.open
        for closed in self.apply(replay.Tick("expire")):
            lost = held.get(closed.id)
            whose = {} if lost is None else {"session": lost.session, "key": lost.key}
            reason, tokens = "the grant was never settled", {"tokens": closed.tokens}
            self.note(IncidentKind.GRANT_EXPIRED, closed.tier, reason=reason, evidence=tokens, **whose)

    def _write(self, event: Event) -> None:
        self._journal.write_event(self._now_ns, event)
        self.events += 1

    def _settle(self, item: SettlementItem) -> None:
        settlement = item.settlement
        usage = settlement.usage
        if usage is not None:
            names = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")
            over: dict[str, Any] = {name: _TOKENS_MAX for name in names if getattr(usage, name) > _TOKENS_MAX}
            usage = replace(usage, **over) if over else usage
        closed = self.apply(replace(settlement, usage=usage))
        if isinstance(closed, ClosedGrant) and (change := closed.change) is not None:
            reason = f"{change.before.value} -> {change.after.value}: {change.cause.value}"
            who = {"session": item.session, "key": item.key, "request_id": item.request_id}
            self.note(IncidentKind.BREAKER, closed.tier, reason=reason, **who)

    def _record(self, write: Callable[..., None], *what: Any) -> None:
        try:
            write(*what)
        except UNWRITABLE as error:
            LOG.error("a record is left out of the journal: %s: %s", type(error).__name__, error)

    def note(self, kind: IncidentKind, tier: str | None, *, reason: str, **more: Any) -> None:
        """Record what belongs to no request's report. `more`: as of `record`."""
        self._journal.write_incident(record(kind, at_s=self.now_s, tier=tier, reason=reason, **more))
