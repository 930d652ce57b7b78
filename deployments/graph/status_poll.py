"""Poll the tiers' statuses in the background, every `_POLL_S`, so that no request waits for them.

The last status stands until the next. A tier that doesn't answer is `unavailable`, or `loading` in the first
`_START_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from deployments.request.interfaces import Tier
from deployments.telemetry import log_error
from reliability.types import TierState, TierStatus

_POLL_S = 5.0
_STATUS_TIMEOUT_S = 2.0
_START_S = 60.0  # Ray starts a process and imports MLX in 5 to 20 s on a busy machine of two cores


class TierWatch:
    """The statuses of all tiers. `kinds` are those of the configuration, for a tier that can't be asked. `known`: the
    last status of each tier that was ever asked; `context_tokens`: the context length of each where it is known."""

    def __init__(self, tiers: Mapping[str, Tier], kinds: Mapping[str, str], contexts: Mapping[str, int | None]) -> None:
        self._tiers = tiers
        self._kinds = kinds
        self.known: dict[str, TierStatus] = {}
        self.context_tokens = {name: tokens for name, tokens in contexts.items() if tokens is not None}
        self._task: asyncio.Task[None] | None = None
        self._heard: set[str] = set()
        self._starting_until_s: float | None = None

    @property
    def context_tokens_max(self) -> int | None:
        """The largest context of any tier; None where one is unknown."""
        known = self.context_tokens
        return max(known.values(), default=None) if known.keys() >= self._tiers.keys() else None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._poll())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def ask(self) -> list[TierStatus]:
        """Ask all tiers now, each with its own timeout."""
        statuses = list(await asyncio.gather(*(self._ask(name) for name in self._tiers)))
        for status in statuses:
            self.known[status.name] = status
            if status.context_tokens is not None:
                self.context_tokens[status.name] = status.context_tokens
        return statuses

    async def _ask(self, name: str) -> TierStatus:
        try:
            async with asyncio.timeout(_STATUS_TIMEOUT_S):
                status = await self._tiers[name].status()
        except Exception as error:
            if self._may_be_starting(name) and isinstance(error, TimeoutError):
                state, reason = TierState.LOADING, "no replica answers yet"
            else:
                state, reason = TierState.UNAVAILABLE, f"no replica answers ({type(error).__name__})"
            return TierStatus(name=name, kind=self._kinds[name], state=state, reason=reason)
        self._heard.add(name)
        return status

    def _may_be_starting(self, name: str) -> bool:
        now_s = asyncio.get_running_loop().time()
        if self._starting_until_s is None:
            self._starting_until_s = now_s + _START_S
        return name not in self._heard and now_s < self._starting_until_s

    async def _poll(self) -> None:
        while True:
            try:
                await self.ask()
            except Exception as error:
                log_error("poll_failed", error)
            await asyncio.sleep(_POLL_S)
