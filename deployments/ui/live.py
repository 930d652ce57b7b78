"""The page `/`, which moves. While a page is open, one task renders its pieces every `_TICK_S` for all pages of a
Router, and each page gets those that changed, by server-sent events. A page over `_PAGES_MAX` is told to come back
later.

Invariants: no page stays open on a Router that stops, or for somebody who may not look any more; without an open page
nothing runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import orjson

from deployments.api.overview import Overview
from deployments.telemetry import log_error
from deployments.ui.page_context import render

_TICK_S = 0.5
_SILENCE_S = 10.0
_PAGES_MAX = 32
_FULL_MS = 10_000
UNBUFFERED = {"x-accel-buffering": "no"}  # a proxy that collects an answer would make a still of it
_PIECES = ("pulse", "day", "chain", "running", "finished")
_Pieces = Mapping[str, str]


def render_pieces(now: Mapping[str, Any], day: Mapping[str, Any], root: str) -> _Pieces:
    """Render the pieces of the page, by their names."""
    return {name: render(f"pieces/{name}.html", now=now, day=day, root=root) for name in _PIECES}


class LivePages:
    """The open pages of one Router replica, on its event loop."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview
        self._pages = 0
        self._roots: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Condition()
        self._drawn: Mapping[str, _Pieces] = {}

    async def watch(self, root: str, may_look: Callable[[], Awaitable[bool]]) -> AsyncGenerator[bytes, None]:
        """Yield the frames for one page, until it is closed, this Router stops, or `may_look` says no."""
        if self._pages >= _PAGES_MAX:
            yield b"retry: %d\n\n" % _FULL_MS
            return
        self._pages += 1
        self._roots.add(root)
        sent: _Pieces = {}
        try:
            yield b"retry: 1000\n\n"
            while not self._overview.stopping() and await may_look():
                pieces = await self._await_news()
                changed = {name: html for name, html in pieces.get(root, sent).items() if sent.get(name) != html}
                sent = {**sent, **changed}
                yield b"data: %b\n\n" % orjson.dumps(changed) if changed else b": \n\n"
        finally:
            self._pages -= 1
            if not self._pages:
                if self._task is not None:
                    self._task.cancel()
                self._task = None
                self._roots.clear()

    async def _await_news(self) -> Mapping[str, _Pieces]:
        """Await what the next turn brings; nothing where it is late."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        with suppress(TimeoutError):
            async with asyncio.timeout(_SILENCE_S), self._turn:
                await self._turn.wait()
                return self._drawn
        return {}

    async def _run(self) -> None:
        while True:
            try:
                now, day = await self._overview.take(), await self._overview.take_day()
                drawn = {root: render_pieces(now, day, root) for root in self._roots}
            except Exception as error:  # the pages stay as they are, and the next turn may be better
                log_error("live_failed", error)
                drawn = {}
            async with self._turn:
                self._drawn = drawn
                self._turn.notify_all()
            await asyncio.sleep(_TICK_S)
