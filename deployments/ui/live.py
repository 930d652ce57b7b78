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
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.exchange import EventStream
from deployments.api.overview import Overview
from deployments.telemetry import log_error
from deployments.ui.page_auth import Visit, find_root
from deployments.ui.page_context import GUARDED, PageContext, render, show_page

_TICK_S = 0.5
_SILENCE_S = 10.0
_PAGES_MAX = 32
_FULL_MS = 10_000
_UNBUFFERED = {"x-accel-buffering": "no"}  # a proxy that collects an answer would make a still of it
_PIECES = ("pulse", "day", "chain", "running", "finished")
_Pieces = Mapping[str, str]


def _render_pieces(now: Mapping[str, Any], day: Mapping[str, Any], root: str) -> _Pieces:
    return {name: render(f"pieces/{name}.html", now=now, day=day, root=root) for name in _PIECES}


class _Live:
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
                self._stop()

    async def _await_news(self) -> Mapping[str, _Pieces]:
        """Await what the next turn brings; nothing where it is late."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        with suppress(TimeoutError):
            async with asyncio.timeout(_SILENCE_S), self._turn:
                await self._turn.wait()
                return self._drawn
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
                drawn = {root: _render_pieces(now, day, root) for root in self._roots}
            except Exception as error:  # the pages stay as they are, and the next turn may be better
                log_error("live_failed", error)
                drawn = {}
            async with self._turn:
                self._drawn = drawn
                self._turn.notify_all()
            await asyncio.sleep(_TICK_S)


class NowPage:
    """The page and its stream."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._live = _Live(context.overview)

    def routes(self) -> list[Route]:
        return [Route("/events", self._context.look(self._stream))]

    async def show(self, request: Request, visit: Visit) -> Response:
        overview = self._context.overview
        pieces = _render_pieces(await overview.take(), await overview.take_day(), find_root(request))
        return show_page(request, visit, "now.html", pieces=pieces)

    async def _stream(self, request: Request, _: Visit) -> Response:
        frames = self._live.watch(find_root(request), lambda: self._context.visits.may_look(request))
        return EventStream(frames, GUARDED | _UNBUFFERED)
