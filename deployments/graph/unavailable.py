"""A tier that can't answer, and says why: it could never have its memory, or its model isn't on this machine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from reliability.types import ChatRequest, Event, Failed, Fault, TierState, TierStatus

RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class UnavailableTier:
    """A `deployments.interfaces.Tier` with a fixed status: unavailable, or loading. It starts no replica."""

    known: TierStatus

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        """Refuse immediately, so that the chain continues."""
        coming = self.known.state is TierState.LOADING
        message = f"tier {self.known.name} is {self.known.state.value}: {self.known.reason}"
        fault = Fault.LOADING if coming else Fault.UNAVAILABLE
        yield [Failed(fault=fault, message=message, retry_after_s=RETRY_S if coming else None)]

    async def status(self) -> TierStatus:
        """Return the status."""
        return self.known

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""
