"""The moving pieces: only what changed is sent, one task makes them for all pages, and none runs for nobody."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import orjson
import pytest

from deployments.ui import live
from deployments.ui.live import _PIECES, LivePages

NOW: dict[str, Any] = {"state_actor": "up", "memory": None, "tiers": [], "running": [], "finished": [], "at": 1.0}


class Overview:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.taken, self.stopped, self.now = 0, False, dict(NOW)

    def stopping(self) -> bool:
        return self.stopped

    async def take(self) -> dict[str, Any]:
        self.taken += 1
        return dict(self.now)

    async def take_day(self) -> dict[str, Any]:
        names = ("requests", "answered", "escalated", "mended", "looped", "prompt_tokens", "completion_tokens")
        return {**dict.fromkeys((*names, "cached_tokens"), 0), "cost_usd": None, "incidents": {}, "tiers": []}


def open_live() -> tuple[LivePages, Overview]:
    overview = Overview()
    return LivePages(overview), overview  # type: ignore[arg-type]


async def may() -> bool:
    return True


async def read(frames: AsyncGenerator[bytes, None]) -> dict[str, str]:
    """The next frame that says something."""
    async for frame in frames:
        if frame.startswith(b"data: "):
            return dict(orjson.loads(frame[6:]))
    return {}


async def test_a_page_gets_all_pieces_and_then_those_that_change(caplog):
    """The first frame has everything, so that a page that was away is whole again. A turn that fails is logged, and the
    pages stay."""
    pages, overview = open_live()
    overview.now.pop("tiers")
    frames = pages.watch("", may)
    await anext(frames)
    assert (await anext(frames)).startswith(b":")
    overview.now["tiers"] = []
    assert set(await read(frames)) == set(_PIECES)
    overview.now["state_actor"] = "away"
    assert set(await read(frames)) == {"pulse"}
    await frames.aclose()


async def test_all_pages_are_drawn_for_once_and_are_bounded():
    """One look at the server a tick, however many look on; and none after the last has gone. One too many is told to
    come back, in a stream that ends well; a place that is given up can be taken again."""
    pages, overview = open_live()
    frames = [pages.watch("", may) for _ in range(live._PAGES_MAX)]
    await asyncio.gather(*map(read, frames))
    assert overview.taken == 1
    assert [frame async for frame in pages.watch("", may)] == [b"retry: 10000\n\n"]
    await frames.pop().aclose()
    frames.append(pages.watch("", may))
    await anext(frames[-1])
    drawing = pages._task
    assert drawing is not None
    for each in frames:
        await each.aclose()
    await asyncio.wait([drawing], timeout=60.0)
    assert (drawing.cancelled(), pages._task, overview.taken, pages._pages) == (True, None, 1, 0)


@pytest.mark.parametrize("stops", [True, False])
async def test_a_page_ends_where_its_router_stops_and_for_whoever_may_not_look_any_more(stops):
    """So that it looks elsewhere, and no page holds a server back; though nobody closes it."""
    pages, overview = open_live()
    allowed = [True]

    async def may_look() -> bool:
        return allowed[0]

    frames = pages.watch("", may_look)
    await read(frames)
    overview.stopped, allowed[0] = stops, stops
    assert await read(frames) == {}
    assert pages._pages == 0


async def test_a_running_request_shows_how_far_its_prompt_is_read():
    """With the time that is left; a request that isn't in a long prefill shows nothing of it."""
    pages, overview = open_live()
    row = {"request_id": "r3", "session": "s", "tier": "fast", "attempts": 0, "tokens": 0, "elapsed_ms": 3000}
    overview.now["running"] = [
        row | {"prefill": {"tokens": 12_288, "of_tokens": 40_000, "left_s": 43.2, "waits_behind": None}}
    ]
    frames = pages.watch("", may)
    shown = await read(frames)
    overview.now["running"] = [row | {"prefill": None}]
    later = await read(frames)
    await frames.aclose()

    assert "prefill 12,288 of 40,000 tokens, about 43 s left" in shown["running"]
    assert "prefill" not in later["running"]
