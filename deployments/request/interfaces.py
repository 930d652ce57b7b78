"""What the one loop of the program (`drive`) needs from the world, as protocols.

In the server they are Ray handles and actors; in the simulator they are seeded fakes in virtual time. Each kind of
tier, and the handle that carries a call to a replica, implements `Tier` and passes one contract test.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from deployments.config.tier_config import Timeouts
from deployments.work.large_work import Large, at_once
from reliability.admission.request import AdmissionRequest, Grant, Rejection
from reliability.confidence import ModelCalibration
from reliability.loops import Window
from reliability.memory.pressure import Level
from reliability.types import ChatRequest, Event, TierStatus, Usage, Verdict

if TYPE_CHECKING:  # a tier's replica needs no judge
    from deployments.work.worker_pool import Elsewhere


class Tier(Protocol):
    """One place that answers chat requests."""

    def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        """Answer `request` as lists of events, never an empty one, in the order of `reliability.types`. The last event
        is a `Finish` or a `Failed`; nothing is raised for a fault. Closing the generator, or cancelling its reader,
        stops the generation."""

    async def status(self) -> TierStatus:
        """Say what this tier is and whether it can answer. Cheap, never raises, runs no model."""

    async def close(self) -> None:
        """Free what the tier holds. Safe to call twice."""


class Admission(Protocol):
    """Who says whether a call may run: breaker, budgets and memory level in one step."""

    async def admit(self, request: AdmissionRequest) -> Grant | Rejection:
        """Give a grant, or the reason why not. May raise or be late: `drive` bounds the wait and goes on without."""

    def settle(self, grant: Grant, verdict: Verdict, usage: Usage | None, retry_after_s: float | None) -> None:
        """Close a grant, once. Never waits, never raises."""

    def progress(self, grant: Grant, usage: Usage) -> None:
        """Report what a running call has used: its grant is charged that if nobody settles it. Never waits, never
        raises."""

    def charge(self, usage: Usage) -> None:
        """Count a call that ran without a grant. Never waits, never raises."""

    @property
    def trouble(self) -> str:
        """Why `admit` is late, in words for a person; empty where nobody knows of anything."""

    @property
    def session(self) -> str | None:
        """The session's name that was found, once `admit` has answered; None where the request's own holds."""

    @property
    def window(self) -> Window | None:
        """The session's earlier answers, once a grant has brought them; None where nobody asked for them."""


class MonotonicClock:
    """The clock of this machine. A moment never crosses a process; a duration may."""

    def now_ns(self) -> int:
        """Return the nanoseconds since some fixed moment of this process."""
        return time.monotonic_ns()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The world. Without `admission` every call may run. `cloud`: the tiers that leave the machine and cost money;
    `foreign`: those that pass on another server's count of tokens; `deferring`: those that defer tools; `text_only`:
    those that read nothing else, which needn't be woken to say so. `memory`: the level of a tier's nodes, and for how
    many nanoseconds there has been pressure; like `calibration`, the one of a tier's model, it must cost nothing.
    `large` runs what may take long, `elsewhere` a function in another process, or raises
    `deployments.work.worker_pool.Undone`."""

    tiers: Mapping[str, Tier]
    timeouts: Mapping[str, Timeouts]
    clock: MonotonicClock
    jitter: Callable[[], float]  # a number in [0, 1)
    admission: Admission | None = None
    cloud: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()
    deferring: frozenset[str] = frozenset()
    text_only: frozenset[str] = frozenset()
    context_tokens: Mapping[str, int] = field(default_factory=dict)
    memory: Callable[[str], tuple[Level, int]] = lambda _: (Level.UNKNOWN, 0)
    calibration: Callable[[str], ModelCalibration | None] = lambda _: None
    large: Large = at_once
    elsewhere: Elsewhere | None = None
