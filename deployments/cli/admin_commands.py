"""`mlx-stack-serve status`, `why`, `logs`, `sessions` and `incidents`: they ask a running server.

Each is a client of the routes under `/v1/reliability`, which the control room shows, too; `--json` prints what they
answered. With API keys they need an admin's, but for one's own requests and sessions. Names that clients chose are
printed without control characters, so that no session's name can move a cursor.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click

from deployments.cli.server_client import LINES_MAX, MALFORMED, NoAnswer, ServerClient, name_foreign, plain
from deployments.reports.report import write_prefill
from deployments.running.status_messages import can_answer
from deployments.ui.formatting import list_way, write_bytes, write_count, write_ms, write_share, write_usd, write_word
from deployments.ui.timeline import Timeline, tell

Record = Mapping[str, Any]


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    cells = [list(map(plain, row)) for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _list_tiers(now: Record) -> list[str]:
    rows = []
    for tier in now["tiers"]:
        load = tier["writing"], tier["asked"] - tier["writing"], f"{tier['tokens_s']:.1f}"
        counts = write_share(tier["cached_share"]), write_count(tier["requests_hour"])
        rows.append((tier["name"], _tell_state(tier), *load, *counts, tier["model"] or tier["kind"] or "–"))
    return _table(("tier", "state", "writing", "waiting", "tokens/s", "cached", "last hour", "model"), rows)


def _tell_state(tier: Record) -> str:
    if tier["isolated"]:
        return f"{tier['state']}, isolated"
    return tier["state"] if tier["breaker"] == "closed" else f"{tier['state']}, breaker {write_word(tier['breaker'])}"


def _sum_up_day(day: Record) -> str:
    count = day["requests"]
    shares = [f"{write_share(day[name] / count if count else None)} {name}" for name in ("answered", "escalated")]
    things = [f"{write_count(day['mended'])} mended", f"{write_count(day['looped'])} with loops"]
    tokens = write_count(day["prompt_tokens"] + day["completion_tokens"])
    head = f"last 24 h: {write_count(count)} requests"
    return ", ".join([head, *shares, *things, f"{tokens} tokens", write_usd(day["cost_usd"])])


def _show_status(now: Record, url: str) -> Iterator[str]:
    away = "" if now["state_actor"] == "up" else f", the state actor is {plain(now['state_actor'])}"
    yield f"{url}: {len(now['running'])} running{away}"
    yield from _list_tiers(now)
    for tier in now["tiers"]:
        if tier["reason"]:
            yield f"{tier['name']}: {plain(tier['reason'])}"
    for row in now["running"]:
        if row["prefill"]:
            yield plain(f"{row['request_id']} at {row['tier']}: {write_prefill(row['prefill'])}")
    yield _sum_up_day(now["day"])
    memory = now["memory"]
    if memory is not None:
        for name, node in memory["nodes"].items():
            leased = f"{write_bytes(node['leased_bytes'])} of {write_bytes(node['budget_bytes'])}"
            yield f"memory of {plain(name)}: {node['level']}, {leased} leased"
        for tier, why in {**memory["waiting"], **memory["capped"]}.items():
            yield f"{tier}: {plain(why)}"


def _show_request(report: Record) -> str:
    at = time.strftime("%m-%d %H:%M:%S", time.localtime(report["at"]))
    way = "→".join(tier if good else f"{tier}!" for tier, good in list_way(report)) or "–"
    tokens = sum((attempt["usage"] or {}).get("total_tokens", 0) for attempt in report["attempts"])
    marks = ["mended"] if report["repairs"] else []
    marks += [f"loop {report['loop']}"] if report["loop"] else []
    marks += [write_word(report["escalation_reason"])] if report["escalation_reason"] else []
    told = f"{at}  {write_word(report['outcome']):<14}  {way:<22}  {write_ms(report['total_ms']):>9}"
    told += f"  {write_count(tokens):>8} tokens  {report['request_id']}  {report['session']}"
    return plain(told + (f"  ({', '.join(marks)})" if marks else ""))


def _show_timeline(report: Record, timeline: Timeline) -> Iterator[str]:
    """Write one request in order: what happened, what was wrong, what was done."""
    took = f"{write_ms(report['total_ms'])}, of it this server {write_ms(report['overhead_ms'])}"
    yield plain(f"{report['request_id']}: {write_word(report['outcome'])} in {took}; session {report['session']}")
    for step in timeline.steps:
        attempt, usage = step.attempt, step.attempt["usage"]
        failure = write_word(step.failure) if step.failure else "good"
        yield plain(f"{step.number}. {attempt['tier']}: {failure}, {write_ms(attempt['elapsed_ms'])} ({step.how})")
        if step.wait_ms >= 1:
            yield f"   it began {write_ms(step.wait_ms)} after what was before"
        for words in (*step.said, *(f"{name}: {text}" for name, text in step.texts.items())):
            yield f"   {plain(words)}"
        if usage:
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            prompt = f"{write_count(usage['prompt_tokens'])} prompt tokens ({write_count(cached)} cached)"
            yield f"   {prompt}, {write_count(usage['completion_tokens'])} written, {write_usd(attempt['cost_usd'])}"
    yield from (plain(words) for words in (*timeline.others, *(f"note: {note}" for note in report["notes"])))


def _list_sessions(sessions: Sequence[Record]) -> list[str]:
    head = ("last used", "session", "key", "requests", "prompt", "written", "cost")
    rows = []
    for one in sessions:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["used_s"]))
        counts = [write_count(one[name]) for name in ("requests", "prompt_tokens", "completion_tokens")]
        rows.append((used, one["session"], one["key"] or "–", *counts, write_usd(one["cost_usd"])))
    return _table(head, rows)


def _list_incidents(incidents: Sequence[Record]) -> list[str]:
    rows = []
    for one in incidents:
        at = time.strftime("%m-%d %H:%M:%S", time.localtime(one["at"]))
        where = [one[name] or "–" for name in ("tier", "request_id", "session")]
        rows.append((at, one["kind"], write_word(one["reason"]), *where))
    return _table(("at", "kind", "what", "tier", "request", "session"), rows)


POLL_S = 0.5


def ask_server(client: ServerClient, command: str, **options: Any) -> int:
    """Run one command with its options; return the exit code."""
    try:
        return COMMANDS[command](client, **options)
    except NoAnswer as error:
        click.echo(plain(error), err=True)
    except MALFORMED as error:
        click.echo(plain(name_foreign(client.url, error)), err=True)
    return 1


def _status(client: ServerClient, *, as_json: bool) -> int:
    """Print the server at this moment; 1 where no tier of the chain can answer."""
    now = client.get("live")
    _print([json.dumps(now)] if as_json else _show_status(now, client.url))
    chain = sorted((tier for tier in now["tiers"] if tier["place"] is not None), key=lambda tier: int(tier["place"]))
    able = can_answer(tier["state"] for tier in chain if not tier["isolated"] and tier["breaker"] != "open")
    return 0 if able else 1


def _why(client: ServerClient, *, request: str, key: str | None, as_json: bool) -> int:
    report, own = client.get(f"requests/{quote(request, safe='')}", key=key), False
    try:
        found = client.get("incidents", request_id=request, key=report["key"], limit=100)["data"]
    except NoAnswer:  # incidents are an admin's; the report is the caller's own
        found, own = [], True
    incidents = list(reversed(found))
    if as_json:
        _print([json.dumps({"report": report, "incidents": incidents})])
    else:
        _print(_show_timeline(report, tell(report, incidents, keep_text=own)))
    return 0


def _logs(client: ServerClient, *, session: str | None, lines: int, follow: bool, as_json: bool) -> int:
    def show(reports: list[dict[str, Any]]) -> None:
        _print(json.dumps(one) if as_json else _show_request(one) for one in reversed(reports))

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
    while True:
        before = found[-1]["id"] if found else None
        page = client.get("requests", session=session, after=last, before=before, limit=LINES_MAX)["data"]
        found += page
        if len(page) < LINES_MAX:
            return found


def _sessions(client: ServerClient, *, session: str | None, key: str | None, lines: int, as_json: bool) -> int:
    if session:
        found = client.get(f"sessions/{quote(session, safe='')}", key=key)
        _print([json.dumps(found)] if as_json else _show_session(found))
        return 0
    found = client.get("sessions", limit=max(1, lines), key=key)["data"][:lines]
    _print([json.dumps(found)] if as_json else _list_sessions(found))
    return 0


def _show_session(session: Record) -> Iterator[str]:
    yield plain(f"{session['session']}: {write_count(session['spent_tokens'])} tokens spent")
    yield f"{write_count(session['reserved_tokens'])} reserved by {session['open_calls']} open call(s)"
    for name, window in session["windows"].items():
        yield f"{name}: {write_count(window['tokens'])} of {write_count(window['tokens_max'])} tokens"


def _incidents(client: ServerClient, *, lines: int, as_json: bool, **filters: str | None) -> int:
    found = client.get("incidents", limit=max(1, lines), **filters)["data"][:lines][::-1]
    _print([json.dumps(found)] if as_json else _list_incidents(found))
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
}
