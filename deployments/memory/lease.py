"""The replica's side of a lease: ask before loading, renew while it is held, give back at the end.

A replica waits here in its constructor, where it must not raise (three times, and Serve gives the deployment up). After
`_BLIND_S` without an answer from any monitor it goes on without a grant; its renewals tell the next monitor.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deployments.memory import nodes
from deployments.memory.plan import MemoryPlan
from deployments.memory.sensors.macos import read_footprint
from deployments.running.actor_calls import call_actor
from deployments.telemetry import log_error, log_info
from reliability.memory.leases import LeaseAnswer
from reliability.memory.pressure import Level

_ASK_TIMEOUT_S = 5.0
_ASK_EVERY_S = 0.5
_BLIND_S = 30.0


@dataclass(slots=True, eq=False)
class ReplicaLease:
    """One replica's lease. `holder` is unique for this incarnation of the replica; `on_level` gets the node's level
    after each renewal. All methods belong to one event loop."""

    plan: MemoryPlan
    app: str
    tier: str
    holder: str
    on_level: Callable[[Level], None] = lambda _: None
    _bytes: int = 0
    _handle: Any = None
    _task: asyncio.Task[None] | None = None

    async def hold(self, wanted_bytes: int | None) -> str:
        """Wait until these bytes are this replica's; None: not known, it only reports that it is there. Replaces what
        it held. Never raises; a text that isn't empty says why it will never be granted."""
        await self._stop_renewing()
        if wanted_bytes is None:
            log_info("memory_need_unknown", tier=self.tier)
        refused = await self._wait(wanted_bytes or 0)
        self._bytes = 0 if refused else wanted_bytes or 0
        self._task = asyncio.get_running_loop().create_task(self._renew())
        return refused

    async def close(self) -> None:
        """Give the bytes back. Never raises: what isn't given back expires."""
        await self._stop_renewing()
        with contextlib.suppress(Exception):
            await self._send("release", self.holder)

    async def _wait(self, wanted_bytes: int) -> str:
        answered_s = time.monotonic()
        logged = ""
        while True:
            try:
                answer: LeaseAnswer = await self._call("acquire", wanted_bytes)
            except Exception as error:
                if time.monotonic() - answered_s > _BLIND_S:
                    log_error("memory_lease_blind", error, tier=self.tier, bytes=wanted_bytes)
                    return ""
            else:
                answered_s = time.monotonic()
                if answer.granted:
                    return ""
                if answer.never:
                    log_info("memory_lease_refused", tier=self.tier, why=answer.why)
                    return answer.why
                if answer.why != logged:
                    logged = answer.why
                    log_info("memory_lease_waits", tier=self.tier, why=logged)
            await asyncio.sleep(_ASK_EVERY_S)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self.plan.settings.lease_s / 3)
            try:
                self.on_level(await self._call("renew", self._bytes, read_footprint()))
            except Exception as error:  # the next renewal tells the monitor, or its successor, all the same
                log_error("memory_lease_not_renewed", error, tier=self.tier)

    async def _call(self, method: str, asked_bytes: int, *more: Any) -> Any:
        return await self._send(method, self.holder, self.tier, asked_bytes, self.plan.needs, *more)

    async def _send(self, method: str, *args: Any) -> Any:
        """Call this node's monitor, which is looked up anew after each failure."""
        handle, self._handle = self._handle, None
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            if handle is None:
                handle = await asyncio.to_thread(nodes.here, self.app, self.plan.settings)
            answer = await call_actor(getattr(handle, method).remote, *args)
        self._handle = handle
        return answer

    async def _stop_renewing(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
