"""Bodies that come at once: who is ended to make room, and who isn't."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from deployments.api.body import Bodies


class Coming:
    """A request whose body is here when it is let go."""

    def __init__(self) -> None:
        self.here = asyncio.Event()

    async def stream(self) -> AsyncIterator[bytes]:
        await self.here.wait()
        yield b"{}"


def test_a_crowd_that_begins_in_one_moment_is_read():
    """Far more bodies than may come at once, whose readers all begin before any has read: none of them is slow."""

    async def main() -> list[bytes]:
        bodies = Bodies(4)
        crowd: list[Any] = [Coming() for _ in range(200)]
        reading = [asyncio.create_task(bodies.read(one, bytes_max=100, first_s=30.0)) for one in crowd]
        await asyncio.sleep(0)
        for one in crowd:
            one.here.set()
        return await asyncio.gather(*reading)

    assert asyncio.run(main()) == [b"{}"] * 200
