"""`mlx-stack-serve top`: the control room's first page in a terminal, by Textual.

It asks the server every `EVERY_S` on a thread. If the server is away, the last picture stays, with a line that says so.
Invariant: no markup is read in the words of a client, a model or an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Header, Label

from deployments.cli.server_client import MALFORMED, NotAnswered, name_foreign
from deployments.cli.text_output import TIER_HEAD, plain, sum_up_day, tier_rows
from deployments.ui.shown import list_way, write_count, write_ms, write_word

__all__ = ["Top"]

EVERY_S = 1.0
RUNNING_HEAD = ("running", "session", "at", "before", "tokens", "for")
FINISHED_HEAD = ("finished", "session", "outcome", "way", "took")


class Server(Protocol):
    """Whoever is asked."""

    url: str

    def get(self, path: str, **params: Any) -> Any:
        """Ask for one thing."""
        ...


class Top(App[None]):
    """The screen."""

    CSS = """
    DataTable { height: auto; max-height: 40%; margin: 1 1 0 1; }
    #day, #trouble { margin: 1 2 0 2; }
    #trouble { color: $error; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "quit", "Quit"), Binding("p", "pause", "Pause")]
    TITLE = "MLX Stack Serve"

    def __init__(self, server: Server, every_s: float = EVERY_S) -> None:
        super().__init__()
        self._server, self._every_s = server, every_s
        self._asking = False
        self._paused = False
        self.sub_title = server.url

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Header()
        yield Label("", id="day", markup=False)
        yield DataTable(id="tiers", cursor_type="none")
        yield DataTable(id="running", cursor_type="none")
        yield DataTable(id="finished", cursor_type="row")
        yield Label("", id="trouble", markup=False)
        yield Footer()

    async def on_mount(self) -> None:
        """Name the columns, and begin to ask."""
        for name, head in (("tiers", TIER_HEAD), ("running", RUNNING_HEAD), ("finished", FINISHED_HEAD)):
            self.query_one(f"#{name}", DataTable).add_columns(*head)
        self.set_interval(self._every_s, self.refresh_all)
        await self.refresh_all()

    def action_pause(self) -> None:
        """Hold the picture, or let it go on."""
        self._paused = not self._paused
        self.sub_title = f"{self._server.url} (paused)" if self._paused else self._server.url

    async def refresh_all(self) -> None:
        """Ask, and show what came."""
        if self._asking or self._paused:
            return
        self._asking = True
        try:
            now = await asyncio.to_thread(self._server.get, "live")
            day, rows = sum_up_day(now["day"]), _write_rows(now)
        except NotAnswered as error:
            self.query_one("#trouble", Label).update(plain(error))
            return
        except MALFORMED as error:  # another server stands there now
            self.query_one("#trouble", Label).update(plain(name_foreign(self._server.url, error)))
            return
        finally:
            self._asking = False
        self.query_one("#trouble", Label).update("")
        self.query_one("#day", Label).update(day)
        for name, shown in rows.items():
            self._fill(name, shown)

    def _fill(self, name: str, rows: Sequence[Sequence[str]]) -> None:
        shown = self.query_one(f"#{name}", DataTable)
        at = shown.cursor_coordinate
        shown.clear()
        for row in rows:
            shown.add_row(*(Text(plain(cell)) for cell in row))
        shown.cursor_coordinate = at


def _write_rows(now: dict[str, Any]) -> dict[str, Sequence[Sequence[str]]]:
    """Write the rows of each table."""
    return {
        "tiers": tier_rows(now),
        "running": [_write_running(row) for row in now["running"]],
        "finished": [_write_finished(report) for report in now["finished"]],
    }


def _write_running(row: dict[str, Any]) -> tuple[str, ...]:
    before = ", ".join([str(row["attempts"]), *([write_word(row["met"])] if row["met"] else [])])
    tokens = write_count(row["tokens"])
    return (row["request_id"], row["session"], row["tier"] or "–", before, tokens, write_ms(row["elapsed_ms"]))


def _write_finished(report: dict[str, Any]) -> tuple[str, ...]:
    way = " → ".join(tier for tier, _ in list_way(report)) or "–"
    outcome = write_word(report["outcome"])
    return (report["request_id"], report["session"], outcome, way, write_ms(report["total_ms"]))
