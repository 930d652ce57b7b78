"""The state actor in this process, as a link calls it: present, hung, or away, as a test wants it."""

import asyncio
from pathlib import Path
from typing import Any

from deployments.state.link import Link
from tests.sim.clock import VirtualClock
from tests.support.incarnations import LIMITS, life


class NearActor:
    """`open` lets calls through; while it isn't set they hang. `away` fails them, and the search for the actor too,
    where `lost`. Each call takes `call_s`. `timed`: the actor goes by the time of a simulated world."""

    def __init__(
        self, folder: Path, limits: Any = LIMITS, *, lost: bool = True, call_s: float = 0.0, timed: bool = True
    ) -> None:
        self.actor = life(folder, clock=VirtualClock() if timed else None)
        self.open = asyncio.Event()
        self.open.set()
        self.away = False
        self.fails: Exception | None = None  # with this, each step
        self.steps: list[Any] = []
        self.finds = 0
        self.link = Link(self.find, limits)
        self._lost, self._call_s = lost, call_s

    async def find(self) -> Any:
        self.finds += 1
        if self.away and self._lost:
            raise ConnectionError("not there")
        return self

    def close(self) -> None:
        """Do nothing: there is no connection."""

    async def call(self, method: str, *args: Any) -> Any:
        if method == "step":
            self.steps.append(args[0])
            if self.fails is not None:
                raise self.fails
        if self._call_s:
            await asyncio.sleep(self._call_s)
        if self.away:
            raise ConnectionError("not there")
        await self.open.wait()
        return getattr(self.actor, method)(*args)
