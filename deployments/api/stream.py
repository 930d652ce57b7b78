"""A stream that never just stops: batches with keep-alives between them, closed whatever becomes of the client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Generic, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

T = TypeVar("T")


async def insert_silences(batches: AsyncGenerator[T, None], silence_s: float) -> AsyncGenerator[T | None, None]:
    """Yield each batch as it comes, and None whenever nothing has come for `silence_s`. The batch that is awaited is
    not disturbed by a silence. Closing this generator closes `batches`."""
    slot = _Slot[T](silence_s)
    filling = asyncio.ensure_future(slot.fill(batches))
    try:
        while (batch := await slot.take()) is not None or not slot.ended:
            yield batch
        await filling  # what the source raised
    finally:
        slot.close()
        filling.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await filling
        await batches.aclose()


class _Slot(Generic[T]):
    """One batch on its way from a task that reads to the reader. One task for a whole stream, and a clock that is wound
    up again once it has rung, cost a tenth of a task and a timeout for each batch."""

    def __init__(self, silence_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._silence_s = silence_s
        self._batch: T | None = None
        self.ended = False
        self._news: asyncio.Future[None] | None = None  # the reader waits
        self._room: asyncio.Future[None] | None = None  # the task waits
        self._quiet_since_s = self._loop.time()
        self._clock = self._loop.call_later(silence_s, self._ring)

    async def fill(self, batches: AsyncGenerator[T, None]) -> None:
        """Put in every batch, each when the reader has come back for it."""
        try:
            async for batch in batches:
                self._batch = batch
                _notify(self._news)
                while self._batch is not None:
                    self._room = self._loop.create_future()
                    await self._room
        finally:
            self.ended = True
            _notify(self._news)

    async def take(self) -> T | None:
        """Take the next batch; None for a silence, and at the end."""
        self._quiet_since_s = self._loop.time()
        _notify(self._room)
        if self._batch is None and not self.ended:
            self._news = self._loop.create_future()
            await self._news
            self._news = None
        batch, self._batch = self._batch, None
        return batch

    def _ring(self) -> None:
        now_s = self._loop.time()
        left_s = self._quiet_since_s + self._silence_s - now_s
        if left_s <= 0:
            _notify(self._news)
            left_s = self._silence_s
        self._clock = self._loop.call_later(left_s, self._ring)

    def close(self) -> None:
        """Stop the clock."""
        self._clock.cancel()


def _notify(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class EventStream(StreamingResponse):
    """A server-sent event stream that closes its generator however the sending ends. Starlette leaves the generator to
    the garbage collector when the client goes while bytes are being sent; then the tier would work on until the
    collector comes by."""

    def __init__(self, frames: AsyncGenerator[bytes, None], headers: dict[str, str]) -> None:
        super().__init__(frames, media_type="text/event-stream", headers=headers)
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._frames.aclose()
