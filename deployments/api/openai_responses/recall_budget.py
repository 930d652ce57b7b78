"""Bound the bytes of stored conversations that requests hold: one of 110 bytes may name a conversation of 16 MiB.

The bytes are reserved before the conversation is parsed, until the last byte of the answer (`MiddlewareApp`).
Invariants: a Router replica holds at most `BYTES_MAX`, an API key `KEY_BYTES_MAX` and `RECALLS_MAX` recalls at a time;
no request waits for longer than 2 * `WAIT_S`, since each holds a place in the Router.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from deployments.errors import ApiError

BYTES_MAX = 64 * 1024 * 1024
KEY_BYTES_MAX = BYTES_MAX // 2
RECALLS_MAX = 4
WAIT_S = 10.0


class RecallBudget:
    """The bytes that the requests of one Router replica have recalled, by API key. One event loop."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._freed = asyncio.Event()
        self._recalls: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(RECALLS_MAX))

    @property
    def held_bytes(self) -> int:
        """The bytes that are reserved now."""
        return self._held.total()

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Take the API key's turn to recall: held from the recall until the bytes are reserved. Raises `ApiError`:
        `overloaded`: other requests of the key hold all of its turns for longer than `WAIT_S`."""
        turns = self._recalls[key]
        try:
            async with asyncio.timeout(WAIT_S):
                await turns.acquire()
        except TimeoutError:
            raise self._refuse() from None
        try:
            yield
        finally:
            turns.release()

    async def reserve(self, key: str, size: int, ending: ExitStack) -> None:
        """Reserve `size` bytes until `ending` closes. Raises `ApiError`: `overloaded`: others hold the budget for
        longer than `WAIT_S`."""
        try:
            async with asyncio.timeout(WAIT_S):
                while self._held[key] + size > KEY_BYTES_MAX or self.held_bytes + size > BYTES_MAX:
                    await self._freed.wait()
        except TimeoutError:
            raise self._refuse() from None
        self._held[key] += size
        ending.callback(self._release, key, size)

    def _refuse(self) -> ApiError:
        words = (
            f"Stored conversations of {self.held_bytes >> 20} MiB are in use; the limit is {BYTES_MAX >> 20} MiB, "
            f"and {KEY_BYTES_MAX >> 20} MiB for one API key. Retry, or send the messages themselves."
        )
        return ApiError("overloaded", words)

    def _release(self, key: str, size: int) -> None:
        self._held[key] -= size
        self._held += Counter()  # drop the keys that hold nothing
        self._freed.set()
        self._freed = asyncio.Event()
