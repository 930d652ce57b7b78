"""The picture in the terminal, driven by Textual's own pilot."""

from __future__ import annotations

import asyncio
import html
from typing import Any

import pytest
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
    """Answers as the route does; while it is `away`, with these words, it doesn't."""

    url = "http://127.0.0.1:8000"

    def __init__(self) -> None:
        self.away, self.asked = "", 0
        self.now: dict[str, Any] = {"tiers": [TIER], "running": [RUNNING], "day": DAY | {"cost_usd": None}}
        self.now["finished"] = [report("done", attempts=[attempt(), attempt("standard")])]

    def get(self, path: str, **params: Any) -> Any:
        self.asked += 1
        if self.away:
            raise NotAnswered(self.away)
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

            server.away = "no server answers"
            await app.refresh_all()
            assert "no server answers" in str(app.query_one("#trouble", Label).render())
            assert len(rows(app, "tiers")) == 1

            server.away = ""
            server.now = server.now | {"running": []}
            await app.refresh_all()
            assert str(app.query_one("#trouble", Label).render()) == ""
            assert rows(app, "running") == []
            await pilot.press("q")
        assert app.return_code == 0

    asyncio.run(play())


@pytest.mark.parametrize("name", ["[/red]", "[red]agent", "[agent-7] build", "a[=b", "[@click=app.quit]x[/]"])
def test_a_name_in_brackets_is_shown_as_it_is(name):
    """Textual would read markup in it: a client's session must neither vanish, nor be a link, nor end the program."""

    async def play() -> None:
        server = Server()
        server.now |= {"running": [RUNNING | {"session": name}], "finished": [report("done", session=name)]}
        app = Top(server, every_s=3600)
        async with app.run_test(size=(140, 40)) as pilot:
            await pilot.pause()
            assert name in html.unescape(app.export_screenshot()).replace("\xa0", " ")
            assert rows(app, "running")[0][1] == rows(app, "finished")[0][1] == name

    asyncio.run(play())


def test_what_is_wrong_is_shown_as_it_is():
    """Errors of the network have brackets, too: an `[Errno 111]`, an address of IPv6."""
    words = "no server answers at http://[::1]:8000 ([Errno 111] Connection refused [/])"

    async def play() -> None:
        server = Server()
        app = Top(server, every_s=3600)
        async with app.run_test(size=(140, 40)) as pilot:
            server.away = words
            await app.refresh_all()
            await pilot.pause()
            assert str(app.query_one("#trouble", Label).render()) == words

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
