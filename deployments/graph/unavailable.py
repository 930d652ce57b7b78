"""A tier that can't be made here, and says why: it stands in for one whose replica could never have its memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from reliability.types import ChatRequest, Event, Failed, Fault, TierState, TierStatus

__all__ = ["RefusedTier"]


class RefusedTier:
    """A `deployments.ports.Tier` that is unavailable."""

    def __init__(self, name: str, kind: str, reason: str) -> None:
        self._status = TierStatus(name=name, kind=kind, state=TierState.UNAVAILABLE, reason=reason)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        """Refuse at once, so that the chain goes on."""
        message = f"tier {self._status.name} is unavailable: {self._status.reason}"
        yield [Failed(fault=Fault.UNAVAILABLE, message=message)]

    async def status(self) -> TierStatus:
        """Report it unavailable, with the reason."""
        return self._status

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""
