"""How a Router replica stops: it takes no new request, lets the running ones end, and cuts the rest in words.

A running request is one whose batches go through `Stopping.pass_on`. It is cut by cancelling the task that waits for
its next batch, and only there, so the caller sees an ordinary end with `run.refusal` set. Invariants: no stream just
stops, no grant stays open, and a client's cancellation is never taken for a cut.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from deployments.app.keep_awake import KeepAwake
from deployments.reports.report import describe_running
from deployments.request.run_record import Run
from reliability.escalation.decisions import Refuse
from reliability.types import Event, RefuseCode

# What it takes to start the server again, with a small model: a client that waits so long finds it, or asks again.
_RETRY_S = 15.0
# For the last bytes of an answer, from the moment that it is complete until they are on the wire.
_LAST_BYTES_S = 0.3
# For what was cut to say so.
_CUT_S = 1.0
# How many running requests are shown to whoever looks.
_SHOWN_MAX = 256
_WORDS = "the server is being stopped: ask again when it is back"
_CUT_WORDS = "the server was stopped before the answer was whole: ask again when it is back"


@dataclass(slots=True, eq=False)
class _Running:
    """One request. `task` is the one that waits for its next batch, None while nobody does."""

    run: Run
    task: asyncio.Task[Any] | None = None
    cut: bool = False


class Stopping:
    """The running requests of one Router replica. `awake` hears when the first one begins, and when none is left."""

    def __init__(self, awake: KeepAwake | None = None) -> None:
        self.begun = False
        self.awake = awake or KeepAwake("never")
        self._cut = False
        self._running: set[_Running] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def list_running(self) -> list[dict[str, Any]]:
        """Describe the requests that run, the oldest first. Nothing is kept for it: who doesn't ask pays nothing."""
        now_ns, now_s = time.monotonic_ns(), time.time()
        rows = [describe_running(one.run, now_ns=now_ns, now_s=now_s) for one in self._running]
        return sorted(rows, key=lambda row: float(row["at"]))[:_SHOWN_MAX]

    async def pass_on(self, run: Run, batches: AsyncGenerator[list[Event], None]) -> AsyncGenerator[list[Event], None]:
        """Pass the batches of one request on, until they end or the request is cut; then `run.refusal` says so."""
        if self.begun:
            run.refusal = Refuse(code=RefuseCode.STOPPING, message=_WORDS, retry_after_s=_RETRY_S)
            return
        one = _Running(run)
        self._running.add(one)
        if self._idle.is_set():
            self.awake.note(True)
        self._idle.clear()
        try:
            async with aclosing(batches):
                while not self._cut:
                    batch = await self._next(one, batches)
                    if batch is None:
                        break
                    yield batch
            if self._cut and run.finish is None and run.refusal is None:
                run.refusal = Refuse(code=RefuseCode.STOPPING, message=_CUT_WORDS, retry_after_s=_RETRY_S)
        finally:
            self._running.discard(one)
            if not self._running:
                self._idle.set()
                self.awake.note(False)

    async def _next(self, one: _Running, batches: AsyncGenerator[list[Event], None]) -> list[Event] | None:
        """Return the next batch; None at the end, and where the request was cut meanwhile."""
        one.task = task = asyncio.current_task()
        try:
            batch = await anext(batches, None)
        except asyncio.CancelledError:
            # Both may have happened: then the client's leaving is the one that counts.
            if not one.cut or task is None or task.uncancel() > 0:
                raise
            return None
        finally:
            one.task = None
        if one.cut and task is not None:
            task.uncancel()  # what was beneath has come to its end all the same
            return None
        return batch

    def begin(self) -> int:
        """Take nothing new from now on; return how many requests run."""
        self.begun = True
        return len(self._running)

    async def drain(self, within_s: float) -> int:
        """Wait for the running requests, then cut what is left; return how many were cut."""
        self.begin()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._idle.wait()
        left = self.cut()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CUT_S):
                await self._idle.wait()
        await asyncio.sleep(_LAST_BYTES_S)
        return left

    def cut(self) -> int:
        """Cut all that runs; return how many that are."""
        self._cut = True
        for one in self._running:
            if one.task is not None and not one.cut:
                one.cut = True
                one.task.cancel()
        return len(self._running)
