"""What the journal writes: the admission state as plain values, and every event that changed it.

`reduce` is the one entrance for events. It uses nothing but the state and the event, so a snapshot with the events
since gives the very state that was lost. After a replay the owner writes a `Begin` before it admits anything, since the
names of its grants are made of the epoch.

Invariant: each event that changed something is written, also what the owner's timers did (a swept session makes room).
`from_plain` and `event_from_plain` raise ValueError, with the place, on anything that they did not write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from reliability.admission import admit as admission
from reliability.admission.admit import AdmissionConfig, AdmissionState
from reliability.admission.request import AdmissionRequest
from reliability.types import Usage, Verdict

_VERSION = 1  # of the shape of the state; a snapshot of another version is refused


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a new incarnation of the owner."""

    epoch: str
    kind: Literal["begin"] = "begin"


@dataclass(frozen=True, slots=True)
class Admit:
    """A request for admission."""

    ask: AdmissionRequest
    kind: Literal["admit"] = "admit"


@dataclass(frozen=True, slots=True)
class Settlement:
    """A grant that was given back."""

    grant_id: str
    verdict: Verdict
    usage: Usage | None
    retry_after_ns: int = 0
    kind: Literal["settle"] = "settle"


@dataclass(frozen=True, slots=True)
class Progress:
    """What a call that still runs has used so far, in tokens, prompt included."""

    grant_id: str
    tokens: int
    kind: Literal["progress"] = "progress"


@dataclass(frozen=True, slots=True)
class Charge:
    """A call that ran without a grant, since nobody answered when it asked for one."""

    key: str
    session: str
    tokens: int
    kind: Literal["charge"] = "charge"


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick of one of the owner's timers: what has expired is closed, or idle sessions are swept."""

    kind: Literal["expire", "sweep"]


OrderKind = Literal["isolate", "restore", "close"]


@dataclass(frozen=True, slots=True)
class Order:
    """An operator's order for a tier: take it out, let it back in, close its breaker."""

    tier: str
    kind: OrderKind


@dataclass(frozen=True, slots=True)
class Reset:
    """A session whose spent tokens an operator forgave."""

    key: str
    session: str
    kind: Literal["reset"] = "reset"


Event = Begin | Admit | Settlement | Progress | Charge | Tick | Order | Reset

_STATE: TypeAdapter[AdmissionState] = TypeAdapter(AdmissionState)
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


def reduce(state: AdmissionState, config: AdmissionConfig, event: Event, now_ns: int) -> tuple[AdmissionState, Any]:
    """Apply one event; return the state, the same one where nothing has changed, and what the event is answered."""
    budget = state.budget
    match event:
        case Begin(epoch):
            return replace(state, epoch=epoch), None  # so grants get names never given before
        case Admit(request):
            return admission.admit(state, config, request, now_ns)
        case Settlement(grant_id, verdict, usage, retry_after_ns):
            return admission.settle(state, config, grant_id, verdict, usage, now_ns, retry_after_ns)
        case Progress(grant_id, tokens):
            budget = budget.note_progress(grant_id, max(0, tokens))
        case Charge(key, session, tokens):
            return admission.charge(state, config, key, session, tokens, now_ns), None
        case Tick("expire"):
            return admission.expire(state, config, now_ns)
        case Tick():
            budget = budget.sweep_sessions(config.budget.bounds, max(now_ns, state.now_ns))
        case Order(tier, order):
            return admission.obey(state, tier, order, now_ns), None
        case Reset(key, session):
            budget = budget.reset_session(key, session)
    return state if budget is state.budget else replace(state, budget=budget), None


def replay(state: AdmissionState, config: AdmissionConfig, events: Iterable[tuple[int, Event]]) -> AdmissionState:
    """Return the state after these events, each with its time."""
    for now_ns, event in events:
        state, _ = reduce(state, config, event, now_ns)
    return state


def to_plain(state: AdmissionState) -> dict[str, Any]:
    """Return the state as JSON-able values."""
    return {"version": _VERSION, "state": _STATE.dump_python(state, mode="json")}


def from_plain(plain: Mapping[str, Any]) -> AdmissionState:
    """Read the state that `to_plain` wrote down."""
    if plain.get("version") != _VERSION:
        raise ValueError(f"snapshot: version {plain.get('version')!r} is not {_VERSION}")
    return _STATE.validate_python(plain.get("state"))


def event_to_plain(event: Event) -> dict[str, Any]:
    """Return an event as JSON-able values."""
    plain: dict[str, Any] = _EVENT.dump_python(event, mode="json")
    return plain


def event_from_plain(plain: Mapping[str, Any]) -> Event:
    """Read the event that `event_to_plain` wrote down."""
    return _EVENT.validate_python(plain)
