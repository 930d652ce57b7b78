"""What has arrived on a connection and was not taken yet.

An HTTP library hands out one piece per HTTP chunk, and most upstreams write one chunk per token. The inbox
reads ahead in a task of its own, so that everything one network read brought, and everything that came while
the reader was busy, is taken in one go: work is done per read, not per token. It reads ahead by at most
`INBOX_BYTES_MAX`; then the connection's own flow control holds the upstream back.

The task belongs to the inbox; `close` ends it and waits for its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

INBOX_BYTES_MAX = 1024 * 1024


class Inbox:
    """Collects the pieces of `source` until they are taken."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._cause: Exception | None = None
        self._ended = False
        self._news = asyncio.Event()
        self._has_space = asyncio.Event()
        self._task = asyncio.create_task(self._pump(source))

    async def take(self, not_before: float = 0.0) -> bytes:
        """Wait for something, and then for more until `not_before` (of the loop's clock) or the end; take all of it.
        Empty at the end; raises what the source raised."""
        await self._news.wait()
        more_s = not_before - asyncio.get_running_loop().time()
        if more_s > 0 and not self._ended:
            await asyncio.wait({self._task}, timeout=more_s)  # its end is the source's
        if self._parts:
            data = b"".join(self._parts)
            self._parts, self._size = [], 0
            self._has_space.set()
            if not self._ended:
                self._news.clear()
            return data
        if self._cause is not None:
            raise self._cause
        return b""

    async def close(self, grace_s: float = 0.0) -> None:
        """Stop reading; `grace_s`: let the source come to its own end for so long."""
        try:
            if grace_s > 0:
                await asyncio.wait({self._task}, timeout=grace_s)
        finally:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _pump(self, source: AsyncIterator[bytes]) -> None:
        try:
            async for data in source:
                if not data:
                    continue
                self._parts.append(data)
                self._size += len(data)
                self._news.set()
                if self._size >= INBOX_BYTES_MAX:
                    self._has_space.clear()
                    await self._has_space.wait()
        except Exception as cause:
            self._cause = cause
        finally:
            self._ended = True
            self._news.set()
