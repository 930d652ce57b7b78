"""What a Router replica and the state actor say to each other: a `StateStep`, first its items, then its requests.

A Router that got no answer sends the same items again under the same number, and the actor, which wrote the number down
with what they did, doesn't do them twice. An older attempt that arrives after a newer one does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deployments.state.idempotent_answers import KeptItem
from reliability.admission.admit import AdmissionConfig
from reliability.admission.breaker import Phase
from reliability.admission.events import Charge, Progress, Settlement
from reliability.admission.request import AdmissionRequest, Grant, Rejection
from reliability.loops import LoopConfig, ShownHistory, Turn, Window
from reliability.sessions import Answered, Trail


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementItem:
    """A grant that comes back. All but the settlement is for the record of a breaker that changes by it."""

    settlement: Settlement
    request_id: str = ""
    session: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnItem:
    """What was answered, for the session's window. `request`: its name, where it brings no history."""

    key: str
    session: str
    turn: Turn
    request: str = ""
    shown: ShownHistory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerItem:
    """What left for a request that names no session, or None. `ticket`: as in its `StepRequest`; `trail`: where its
    session wasn't searched yet."""

    key: str
    session: str
    ticket: str
    answered: Answered | None
    trail: Trail | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportItem:
    """A finished request: its report, and its incidents. JSON-ready, without the key's secret."""

    key: str
    session: str
    report: Mapping[str, Any]
    incidents: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentItem:
    """An incident that belongs to no request. Several Routers may see it: the first one under a `request_id` counts."""

    incident: Mapping[str, Any]


# `Progress` and `Charge` say all that there is to say, and go into the journal as they are; a `KeptItem` never does.
Item = SettlementItem | Progress | Charge | TurnItem | AnswerItem | ReportItem | IncidentItem | KeptItem


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """One admission request in a step. `window`: the answer brings the session's window too. `trail`: the session isn't
    named and is found by this; `ticket` names this sending. `complete`: how many answers of its streak it shows itself;
    kept ones come only where there are more."""

    admission: AdmissionRequest
    window: bool = False
    trail: Trail | None = None
    ticket: str = ""
    complete: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAnswer:
    """What was decided on one request, with the window and the session where they were asked for."""

    decision: Grant | Rejection
    window: Window | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStep:
    """Items and requests of the Router `client`. `config`: the digest of their limits. `attempt`: how often it was sent
    under this number before; each of those may have been done."""

    client: str
    number: int
    config: str
    items: tuple[Item, ...] = ()
    requests: tuple[StepRequest, ...] = ()
    attempt: int = 0

    @property
    def works(self) -> bool:
        """Whether there is anything to do: a heartbeat only shows that the Router is there."""
        return bool(self.items or self.requests or self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A tier's breaker as others see it. `until_s`: how long it stays open still."""

    phase: Phase
    isolated: bool
    until_s: float = 0.0

    @property
    def degraded(self) -> bool:
        """Whether calls to the tier are held off, or only tried."""
        return self.isolated or self.phase is not Phase.CLOSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer a request, in order, and the health of tiers. `watched`: a page is open on what goes on."""

    answers: tuple[StepAnswer, ...] = ()
    health: Mapping[str, Health] = field(default_factory=dict)
    watched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLimits:
    """What an actor decides by, with a digest that names it."""

    digest: str
    admission: AdmissionConfig
    loops: LoopConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which incidents: every field that is set must match, the newest come first. `before`: the id to continue from."""

    kind: str | None = None
    tier: str | None = None
    session: str | None = None
    key: str | None = None
    request_id: str | None = None
    since_s: float | None = None
    until_s: float | None = None
    before: int | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """A response that may be continued. `record`: its input and itself, compressed, of `size` bytes without that;
    `previous`: the response that it continues."""

    key: str
    id: str
    session: str
    previous: str | None
    at_s: float
    size: int
    record: bytes
