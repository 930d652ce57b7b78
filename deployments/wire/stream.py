"""A stream that never just stops: batches with keep-alives between them, closed whatever becomes of the client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

__all__ = ["EventStream", "paced"]

T = TypeVar("T")


async def paced(batches: AsyncGenerator[T, None], silence_s: float) -> AsyncGenerator[T | None, None]:
    """Yield each batch as it comes, and None whenever nothing has come for `silence_s`.

    The batch that is awaited is not disturbed by a silence. Closing this generator closes `batches`.
    """
    # The end is a value: StopAsyncIteration can't be the result of a task.
    pending: asyncio.Task[T | None] = asyncio.ensure_future(_next(batches))
    try:
        while True:
            done, _ = await asyncio.wait({pending}, timeout=silence_s)
            if not done:
                yield None
                continue
            batch = pending.result()
            if batch is None:
                return
            yield batch
            pending = asyncio.ensure_future(_next(batches))
    finally:
        pending.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await pending
        await batches.aclose()


async def _next(batches: AsyncGenerator[T, None]) -> T | None:
    return await anext(batches, None)


class EventStream(StreamingResponse):
    """A server-sent event stream that closes its generator however the sending ends.

    Starlette leaves the generator to the garbage collector when the client goes while bytes are being sent; then the
    tier would work on until the collector comes by.
    """

    def __init__(self, frames: AsyncGenerator[bytes, None], headers: dict[str, str]) -> None:
        super().__init__(frames, media_type="text/event-stream", headers=headers)
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._frames.aclose()
