"""`mlx-stack-serve status`, `why`, `logs`, `sessions`, `incidents` and `top`: they ask a running server.

Each is a client of the routes under `/v1/reliability`, which the control room shows, too; `--json` prints what they
answered, for programs. With API keys they need an admin's, but for one's own requests and sessions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import click

from deployments.cli.server_client import LINES_MAX, MALFORMED, NotAnswered, ServerClient, name_foreign
from deployments.cli.text_output import list_incidents, list_sessions, plain, show_request, show_status, show_timeline
from deployments.running.status_messages import can_answer
from deployments.ui.timeline import tell

__all__ = ["COMMANDS", "ask_server"]

POLL_S = 0.5


def ask_server(client: ServerClient, command: str, **options: Any) -> int:
    """Run one command with its options; return the exit code."""
    try:
        return COMMANDS[command](client, **options)
    except NotAnswered as error:
        click.echo(plain(error), err=True)
    except MALFORMED as error:
        click.echo(plain(name_foreign(client.url, error)), err=True)
    return 1


def _status(client: ServerClient, *, as_json: bool) -> int:
    """Print the server at this moment; 1 where no tier of the chain can answer."""
    now = client.get("live")
    _print([json.dumps(now)] if as_json else show_status(now, client.url))
    chain = sorted((tier for tier in now["tiers"] if tier["place"] is not None), key=lambda tier: int(tier["place"]))
    able = can_answer(tier["state"] for tier in chain if not tier["isolated"] and tier["breaker"] != "open")
    return 0 if able else 1


def _why(client: ServerClient, *, request: str, key: str | None, as_json: bool) -> int:
    report, own = client.get(f"requests/{quote(request, safe='')}", key=key), False
    try:
        found = client.get("incidents", request_id=request, key=report["key"], limit=100)["data"]
    except NotAnswered:  # incidents are an admin's; the report is the caller's own
        found, own = [], True
    incidents = list(reversed(found))
    if as_json:
        _print([json.dumps({"report": report, "incidents": incidents})])
    else:
        _print(show_timeline(report, tell(report, incidents, keep_text=own)))
    return 0


def _logs(client: ServerClient, *, session: str | None, lines: int, follow: bool, as_json: bool) -> int:
    def show(reports: list[dict[str, Any]]) -> None:
        _print(json.dumps(one) if as_json else show_request(one) for one in reversed(reports))

    newest = client.get("requests", session=session, limit=max(1, lines))["data"]
    show(newest[:lines])
    last = newest[0]["id"] if newest else 0
    while follow:
        time.sleep(POLL_S)
        more = _read_newer(client, session, last)
        show(more)
        last = more[0]["id"] if more else last
    return 0


def _read_newer(client: ServerClient, session: str | None, last: int) -> list[dict[str, Any]]:
    """Read all requests that have ended since the last one, the newest first: in as many pages as it takes."""
    found: list[dict[str, Any]] = []
    more = True
    while more:
        before = found[-1]["id"] if found else None
        page = client.get("requests", session=session, after=last, before=before, limit=LINES_MAX)["data"]
        found += page
        more = len(page) == LINES_MAX
    return found


def _sessions(client: ServerClient, *, session: str | None, key: str | None, lines: int, as_json: bool) -> int:
    if session:
        found = client.get(f"sessions/{quote(session, safe='')}", key=key)
        _print([json.dumps(found)] if as_json else _show_session(found))
        return 0
    found = client.get("sessions", limit=max(1, lines), key=key)["data"][:lines]
    _print([json.dumps(found)] if as_json else list_sessions(found))
    return 0


def _show_session(session: dict[str, Any]) -> Iterator[str]:
    from deployments.ui.shown import write_count

    yield plain(f"{session['session']}: {write_count(session['spent_tokens'])} tokens spent")
    yield f"{write_count(session['reserved_tokens'])} reserved by {session['open_calls']} open call(s)"
    for name, window in session["windows"].items():
        yield f"{name}: {write_count(window['tokens'])} of {write_count(window['tokens_max'])} tokens"


def _incidents(client: ServerClient, *, lines: int, as_json: bool, **filters: str | None) -> int:
    found = client.get("incidents", limit=max(1, lines), **filters)["data"][:lines][::-1]
    _print([json.dumps(found)] if as_json else list_incidents(found))
    return 0


def _top(client: ServerClient) -> int:
    from deployments.cli.top import Top

    list(show_status(client.get("live"), client.url))  # what is wrong is said before the terminal is taken
    Top(client).run()
    return 0


def _print(lines: Any) -> None:
    for line in list(lines):  # what can't be read is noticed before a line of it is printed
        click.echo(line)


COMMANDS: dict[str, Callable[..., int]] = {
    "status": _status,
    "why": _why,
    "logs": _logs,
    "sessions": _sessions,
    "incidents": _incidents,
    "top": _top,
}
