"""What the one loop of the program (`drive`) needs from the world, as protocols.

`drive` imports no Ray, no HTTP and no clock: it is given these. In the server they are Ray handles and actors; in the
simulator they are seeded fakes in virtual time. Three tier kinds (`mlx`, `hosted`, `scripted`) and the handle that
carries a call to a replica all implement `Tier` and pass one contract test.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from reliability.types import ChatRequest, Event, TierStatus

__all__ = ["Clock", "Tier"]


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


class Clock(Protocol):
    """Monotonic time. A moment never crosses a process; a duration may."""

    def now_ns(self) -> int:
        """Nanoseconds since some fixed moment of this process."""
        ...
