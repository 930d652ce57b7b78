"""What the one loop of the program (`drive`) needs from the world, as protocols.

`drive` imports no Ray, no HTTP and no clock: it is given these. In the server they are Ray handles and actors; in the
simulator they are seeded fakes in virtual time. Three tier kinds (`mlx`, `hosted`, `scripted`) and the handle that
carries a call to a replica all implement `Tier` and pass one contract test.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from deployments.config import Timeouts
from reliability.admission import Ask, Barred, Grant
from reliability.types import ChatRequest, Event, TierStatus, Usage, Verdict

__all__ = ["Admission", "Clock", "Ports", "Tier"]


class Tier(Protocol):
    """One place that answers chat requests."""

    def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        """Answer `request` as lists of events, one list per chunk that is worth sending on (never an empty one).

        The order of events is that of `reliability.types`. The last event is a `Finish` or a `Failed`; nothing is
        raised for a fault. Closing the generator, or cancelling the task that reads it, stops the generation.
        """
        ...

    async def status(self) -> TierStatus:
        """Say what this tier is and whether it can answer. Cheap, never raises, runs no model."""
        ...

    async def close(self) -> None:
        """Free what the tier holds. Safe to call twice."""
        ...


class Admission(Protocol):
    """Who says whether a call may run: breaker, budgets and memory level in one step."""

    async def admit(self, ask: Ask) -> Grant | Barred:
        """Give a grant, or the reason why not. May raise or be late: `drive` bounds the wait and goes on without."""
        ...

    def settle(self, grant: Grant, verdict: Verdict, usage: Usage | None, retry_after_s: float | None) -> None:
        """Close a grant, once. Never waits, never raises."""
        ...


class Clock(Protocol):
    """Monotonic time. A moment never crosses a process; a duration may."""

    def now_ns(self) -> int:
        """Nanoseconds since some fixed moment of this process."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The world. `jitter` returns a number in [0, 1). Without `admission` every call may run. `paid` names the tiers
    that cost money: without an answer from `admission` within `admit_s` seconds they are not called, while local tiers
    are."""

    tiers: Mapping[str, Tier]
    timeouts: Mapping[str, Timeouts]
    clock: Clock
    jitter: Callable[[], float]
    admission: Admission | None = None
    paid: frozenset[str] = frozenset()
    admit_s: float = 0.5
