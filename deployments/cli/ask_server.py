"""What `status`, `why`, `logs`, `sessions`, `incidents` and `top` do; `operators.py` says what they take."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from deployments.cli.lines import list_incidents, list_sessions, plain, show_request, show_status, show_timeline
from deployments.cli.operators import LINES_MAX
from deployments.cli.server_client import MALFORMED, NotAnswered, ServerClient, name_foreign
from deployments.running.status_messages import can_answer
from deployments.ui.timeline import tell

__all__ = ["COMMANDS", "ask_server"]

POLL_S = 0.5


def ask_server(client: ServerClient, arguments: argparse.Namespace) -> int:
    """Run one command; the result is the exit code."""
    try:
        return COMMANDS[arguments.command](client, arguments)
    except NotAnswered as error:
        print(plain(error), file=sys.stderr)  # noqa: T201
        return 1
    except BrokenPipeError:  # whoever read it has seen enough
        sys.stderr.close()
        return 0
    except MALFORMED as error:
        print(plain(name_foreign(client.url, error)), file=sys.stderr)  # noqa: T201
        return 1


def _status(client: ServerClient, arguments: argparse.Namespace) -> int:
    """Print the server at this moment; 1 where no tier of the chain can answer."""
    now = client.get("live")
    _print([json.dumps(now)] if arguments.json else show_status(now, client.url))
    chain = sorted((tier for tier in now["tiers"] if tier["place"] is not None), key=lambda tier: int(tier["place"]))
    able = can_answer(tier["state"] for tier in chain if not tier["isolated"] and tier["breaker"] != "open")
    return 0 if able else 1


def _why(client: ServerClient, arguments: argparse.Namespace) -> int:
    report, own = client.get(f"requests/{quote(arguments.request, safe='')}", key=arguments.key), False
    try:
        found = client.get("incidents", request_id=arguments.request, key=report["key"], limit=100)["data"]
    except NotAnswered:  # incidents are an admin's; the report is the caller's own
        found, own = [], True
    incidents = list(reversed(found))
    if arguments.json:
        _print([json.dumps({"report": report, "incidents": incidents})])
    else:
        _print(show_timeline(report, tell(report, incidents, keep_text=own)))
    return 0


def _logs(client: ServerClient, arguments: argparse.Namespace) -> int:
    def show(reports: list[dict[str, Any]]) -> None:
        _print(json.dumps(one) if arguments.json else show_request(one) for one in reversed(reports))

    newest = client.get("requests", session=arguments.session, limit=max(1, arguments.lines))["data"]
    show(newest[: arguments.lines])
    last = newest[0]["id"] if newest else 0
    while arguments.follow:
        time.sleep(POLL_S)
        more = _read_newer(client, arguments.session, last)
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


def _sessions(client: ServerClient, arguments: argparse.Namespace) -> int:
    if arguments.session:
        session = client.get(f"sessions/{quote(arguments.session, safe='')}", key=arguments.key)
        _print([json.dumps(session)] if arguments.json else _show_session(session))
        return 0
    found = client.get("sessions", limit=max(1, arguments.lines), key=arguments.key)["data"][: arguments.lines]
    _print([json.dumps(found)] if arguments.json else list_sessions(found))
    return 0


def _show_session(session: dict[str, Any]) -> Iterator[str]:
    from deployments.ui.shown import write_count

    yield plain(f"{session['session']}: {write_count(session['spent_tokens'])} tokens spent")
    yield f"{write_count(session['reserved_tokens'])} reserved by {session['open_calls']} open call(s)"
    for name, window in session["windows"].items():
        yield f"{name}: {write_count(window['tokens'])} of {write_count(window['tokens_max'])} tokens"


def _incidents(client: ServerClient, arguments: argparse.Namespace) -> int:
    filters = {"kind": arguments.kind, "tier": arguments.tier, "session": arguments.session}
    found = client.get("incidents", limit=max(1, arguments.lines), **filters)["data"][: arguments.lines][::-1]
    _print([json.dumps(found)] if arguments.json else list_incidents(found))
    return 0


def _top(client: ServerClient, _: argparse.Namespace) -> int:
    from deployments.cli.top import Top

    list(show_status(client.get("live"), client.url))  # what is wrong is said before the terminal is taken
    Top(client).run()
    return 0


def _print(lines: Any) -> None:
    for line in list(lines):  # what can't be read is noticed before a line of it is printed
        print(line, flush=True)  # noqa: T201


COMMANDS: dict[str, Callable[[ServerClient, argparse.Namespace], int]] = {
    "status": _status,
    "why": _why,
    "logs": _logs,
    "sessions": _sessions,
    "incidents": _incidents,
    "top": _top,
}
