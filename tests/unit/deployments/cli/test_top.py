"""The picture in the terminal, driven by Textual's own pilot."""

from __future__ import annotations

import asyncio
from typing import Any

from textual.widgets import DataTable, Label

from deployments.cli.server_client import NotAnswered
from deployments.cli.top import Top
from tests.support.room_rig import attempt, report

TIER = {"name": "fast", "state": "ready", "breaker": "closed", "isolated": False, "writing": 1, "asked": 3}
TIER |= {"tokens_s": 12.5, "cached_share": 0.5, "requests_hour": 7, "model": "m", "kind": "mlx", "reason": None}
RUNNING = {"request_id": "runs", "session": "a\x1b[2J", "tier": "fast", "attempts": 1, "met": "loop", "tokens": 9}
RUNNING |= {"elapsed_ms": 1500}
DAY = dict.fromkeys(("requests", "answered", "escalated", "mended", "looped", "prompt_tokens", "completion_tokens"), 1)


class Server:
    """Answers as the route does; while `away`, it doesn't."""

    url = "http://127.0.0.1:8000"

    def __init__(self) -> None:
        self.away, self.asked = False, 0
        self.now: dict[str, Any] = {"tiers": [TIER], "running": [RUNNING], "day": DAY | {"cost_usd": None}}
        self.now["finished"] = [report("done", attempts=[attempt(), attempt("standard")])]

    def get(self, path: str, **params: Any) -> Any:
        self.asked += 1
        if self.away:
            raise NotAnswered("no server answers")
        return self.now


def rows(app: Top, name: str) -> list[list[str]]:
    shown = app.query_one(f"#{name}", DataTable)
    return [[str(cell) for cell in shown.get_row_at(n)] for n in range(shown.row_count)]


def test_it_shows_what_the_server_says_and_goes_on():
    """Tiers, what runs, what ended; a server that is away leaves the last picture, and `q` ends it."""

    async def play() -> None:
        server = Server()
        app = Top(server, every_s=3600)
        async with app.run_test(size=(140, 40)) as pilot:
            await pilot.pause()
            assert rows(app, "tiers") == [["fast", "ready", "1", "2", "12.5", "50 %", "7", "m"]]
            assert rows(app, "running") == [["runs", "a�[2J", "fast", "1, loop", "9", "1.5 s"]]
            assert rows(app, "finished")[0][3] == "fast → standard"

            server.away = True
            await app.refresh_all()
            assert "no server answers" in str(app.query_one("#trouble", Label).render())
            assert len(rows(app, "tiers")) == 1

            server.away = False
            server.now = server.now | {"running": []}
            await app.refresh_all()
            assert str(app.query_one("#trouble", Label).render()) == ""
            assert rows(app, "running") == []
            await pilot.press("q")
        assert app.return_code == 0

    asyncio.run(play())


def test_a_paused_picture_asks_nobody():
    """Until it is let go on."""

    async def play() -> None:
        server = Server()
        app = Top(server, every_s=3600)
        async with app.run_test() as pilot:
            await pilot.press("p")
            before = server.asked
            await app.refresh_all()
            assert server.asked == before
            await pilot.press("p")
            await app.refresh_all()
            assert server.asked == before + 1

    asyncio.run(play())
