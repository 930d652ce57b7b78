"""The pages that move: what has changed of them, to every open page, by server-sent events.

    Overview ──every TICK_S, while a page is open──▶ pieces of HTML ──those that changed──▶ each page

A page is sent them as long as whoever looks still may: a key that is taken away, and a cookie that has grown too old,
end the open pages, too. One page too many isn't refused, since a browser would never ask again, but told to come back.

One task a Router replica makes the pieces for all of its pages, so a second and a third page cost only their bytes. It
ends with the last page; with none open nothing runs. A page is sent a piece only where it differs from what it has, so
what stands still keeps its focus and costs nothing.

What must never happen: a page that is open for ever on a Router that is being stopped, or to somebody who may not look
any more; more pages than `PAGES_MAX`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import orjson

from deployments.api.overview import Overview
from deployments.telemetry import log_error
from deployments.ui.rendering import render

__all__ = ["PIECES", "Live", "render_pieces"]

TICK_S = 0.5
SILENCE_S = 10.0
PAGES_MAX = 32
FULL_MS = 10_000
PIECES = ("pulse", "day", "chain", "running", "finished")
Pieces = Mapping[str, str]


def render_pieces(now: Mapping[str, Any], day: Mapping[str, Any], root: str) -> Pieces:
    """Render the moving pieces of the page."""
    return {name: render(f"pieces/{name}.html", now=now, day=day, root=root) for name in PIECES}


class Live:
    """The open pages of one Router replica, on its event loop."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview
        self._pages = 0
        self._roots: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._news: asyncio.Future[Mapping[str, Pieces]] | None = None

    @property
    def pages(self) -> int:
        """How many are open."""
        return self._pages

    async def watch(self, root: str, may_look: Callable[[], Awaitable[bool]]) -> AsyncGenerator[bytes, None]:
        """Yield the frames for one page, until it is closed, this Router stops, or `may_look` says no."""
        if self._pages >= PAGES_MAX:
            yield b"retry: %d\n\n" % FULL_MS
            return
        self._pages += 1
        self._roots.add(root)
        sent: Pieces = {}
        try:
            yield b"retry: 1000\n\n"
            while not self._overview.stopping and await may_look():
                pieces = await self._await_news()
                changed = {name: html for name, html in pieces.get(root, sent).items() if sent.get(name) != html}
                sent = {**sent, **changed}
                yield b"data: %b\n\n" % orjson.dumps(changed) if changed else b": \n\n"
        finally:
            self._pages -= 1
            if not self._pages:
                self._stop()

    async def _await_news(self) -> Mapping[str, Pieces]:
        """Await what the next turn brings; nothing where it is late."""
        if self._task is None:
            self._news = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run())
        if self._news is None:
            raise AssertionError("a running task has its news")
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_S):
                return await asyncio.shield(self._news)
        return {}

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = None
        self._roots.clear()

    async def _run(self) -> None:
        while True:
            try:
                now, day = await self._overview.take(), await self._overview.take_day()
                pieces = {root: render_pieces(now, day, root) for root in self._roots}
            except Exception as error:  # the pages stay as they are, and the next turn may be better
                log_error("live_failed", error)
                pieces = {}
            news, self._news = self._news, asyncio.get_running_loop().create_future()
            if news is not None and not news.done():
                news.set_result(pieces)
            await asyncio.sleep(TICK_S)
