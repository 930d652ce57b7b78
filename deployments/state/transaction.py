"""One step of the state actor: items and asks through the reducer, and into the journal, as one transaction.

    state before ──items──▶ ──asks──▶ state after        (and every event that changed something in the journal)

The batch holds the state on its way; the actor takes it over only after the commit, so a disk that fails changes
nothing, neither on it nor in memory.

Three things from outside are bounded here, since a step that can't be written would be sent again for ever: a count of
tokens that no call can have, a wait that no tier can mean, and a report or incident that is no JSON; that one is left
out, and the log says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from deployments.state.incident_record import IncidentKind, record
from deployments.state.journal import UNWRITABLE, Journal
from deployments.state.records import (
    RETRY_AFTER_S_MAX,
    Answer,
    Asked,
    Charged,
    Done,
    Item,
    Noted,
    Progressed,
    Said,
    Settled,
)
from reliability.admission import admit as admission
from reliability.admission import events as replay
from reliability.admission.admit import Admission, AdmissionConfig, Grant
from reliability.admission.admit import Settled as Closed
from reliability.admission.breaker import Change
from reliability.admission.events import Admit, Begin, Charge, Event, Progress, Settle
from reliability.types import Usage, Verdict

__all__ = ["Batch"]

LOG = logging.getLogger("ray.serve")
NS_PER_S = 1_000_000_000
NOTHING_SPENT = Usage()
TOKENS_MAX = 10**12  # of one call: beyond it a tier's count is nonsense, and SQLite's integers end


class Batch:
    """The transition of one step. `said` collects what goes into the windows of sessions, which aren't journalled."""

    def __init__(self, state: Admission, config: AdmissionConfig, journal: Journal, now_ns: int) -> None:
        self.state = state
        self.said: list[Said] = []
        self._config = config
        self._journal = journal
        self._now_ns = now_ns
        self.now_s = now_ns / NS_PER_S
        self.events = 0  # written so far

    def begin(self, life: str, aside: str | None) -> None:
        """A new life. `aside`: the name of a journal that could not be read, whose budgets are forgotten."""
        self.apply(Begin(life))
        if aside is not None:
            self._note(IncidentKind.JOURNAL, None, reason="unreadable", evidence={"put_aside": aside})

    def take(self, items: Sequence[Item]) -> None:
        """What has happened."""
        for item in items:
            match item:
                case Settled():
                    self._settle(item)
                case Progressed(grant_id=grant_id, tokens=tokens):
                    self.apply(Progress(grant_id, min(tokens, TOKENS_MAX)))
                case Charged(key=key, session=session, tokens=tokens):
                    self.apply(Charge(key, session, min(tokens, TOKENS_MAX)))
                case Said():
                    self.said.append(item)
                case Done(key=key, report=report, incidents=incidents):
                    self._record(self._journal.write_report, key, report, self.now_s)
                    for incident in incidents:
                        self._record(self._journal.write_incident, incident)
                case Noted(incident=incident):
                    if not self._journal.knows_incident(incident):
                        self._record(self._journal.write_incident, incident)

    def ask(self, asked: Sequence[Asked]) -> list[Answer]:
        """What may run. Only a grant is written: a rejection changes nothing that time wouldn't."""
        answers = []
        for each in asked:
            after, decision = admission.admit(self.state, self._config, each.ask, self._now_ns)
            if isinstance(decision, Grant):
                self._write(Admit(each.ask))
                self.state = after
            answers.append(Answer(decision=decision))
        return answers

    def release(self, grants: Sequence[str]) -> None:
        """Take back the grants of an answer that never arrived: nobody has used them."""
        for name in grants:
            self.apply(Settle(name, Verdict.IGNORED, NOTHING_SPENT))

    def apply(self, event: Event) -> Any:
        """One event that changes the state, and the reducer's word on it."""
        before = self.state
        self.state, answer = replay.reduce(before, self._config, event, self._now_ns)
        if self.state is not before:
            self._write(event)
        return answer

    def expire(self) -> None:
        """Close what was never settled. To be done before anything else, which would close it without a record."""
        held = self.state.budget.open
        for closed in self.apply(replay.Expire()):
            lost = held.get(closed.id)
            whose = {} if lost is None else {"session": lost.session, "key": lost.key}
            words = "the grant was never settled"
            tokens = {"tokens": closed.tokens}
            self._note(IncidentKind.GRANT_EXPIRED, closed.tier, reason=words, evidence=tokens, **whose)

    def note_operator(self, word: str, *, tier: str | None = None, session: str = "", key: str = "") -> None:
        """Record what a person did by hand."""
        self._note(IncidentKind.OPERATOR, tier, reason=word, session=session or None, key=key)

    def _write(self, event: Event) -> None:
        self._journal.write_event(self._now_ns, event)
        self.events += 1

    def _settle(self, item: Settled) -> None:
        usage = None if item.usage is None else _possible(item.usage)
        wait_ns = min(max(item.retry_after_ns, 0), RETRY_AFTER_S_MAX * NS_PER_S)
        closed = self.apply(Settle(item.grant_id, item.verdict, usage, wait_ns))
        if isinstance(closed, Closed) and closed.change is not None:
            self._note_breaker(closed.tier, closed.change, item)

    def _record(self, write: Callable[..., None], *what: Any) -> None:
        try:
            write(*what)
        except UNWRITABLE as error:
            LOG.error("a record is left out of the journal: %s: %s", type(error).__name__, error)

    def _note_breaker(self, tier: str, change: Change, item: Settled) -> None:
        words = f"{change.before.value} -> {change.after.value}: {change.cause.value}"
        who = {"session": item.session, "key": item.key, "request_id": item.request_id}
        self._note(IncidentKind.BREAKER, tier, reason=words, **who)

    def _note(self, kind: IncidentKind, tier: str | None, *, reason: str, **more: Any) -> None:
        self._journal.write_incident(record(kind, at_s=self.now_s, tier=tier, reason=reason, **more))


def _possible(usage: Usage) -> Usage:
    if max(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens) <= TOKENS_MAX:
        return usage
    names = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")
    return replace(usage, **{name: min(getattr(usage, name), TOKENS_MAX) for name in names})
