"""Write the figures of the control room as lines for a terminal. Pure.

Names that clients chose are printed without control characters, so that no session's name can move a cursor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deployments.ui.shown import list_way, write_bytes, write_count, write_ms, write_share, write_usd, write_word
from deployments.ui.timeline import Timeline

__all__ = [
    "list_incidents",
    "list_sessions",
    "plain",
    "show_request",
    "show_status",
    "show_timeline",
    "sum_up_day",
    "table",
    "tier_rows",
]

Record = Mapping[str, Any]
TIER_HEAD = ("tier", "state", "writing", "waiting", "tokens/s", "cached", "last hour", "model")


def plain(value: Any) -> str:
    """Write a value without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "�" for letter in str(value))


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Set rows into columns."""
    cells = [list(map(plain, row)) for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def tier_rows(now: Record) -> list[tuple[str, ...]]:
    """Write a row for each tier, as `TIER_HEAD` names its cells."""
    return [
        (
            tier["name"],
            _tell_state(tier),
            str(tier["writing"]),
            str(tier["asked"] - tier["writing"]),
            f"{tier['tokens_s']:.1f}",
            write_share(tier["cached_share"]),
            write_count(tier["requests_hour"]),
            tier["model"] or tier["kind"] or "–",
        )
        for tier in now["tiers"]
    ]


def _tell_state(tier: Record) -> str:
    if tier["isolated"]:
        return f"{tier['state']}, isolated"
    return tier["state"] if tier["breaker"] == "closed" else f"{tier['state']}, breaker {write_word(tier['breaker'])}"


def sum_up_day(day: Record) -> str:
    """Write the last day in one line."""
    count = day["requests"]
    shares = [f"{write_share(day[name] / count if count else None)} {name}" for name in ("answered", "escalated")]
    things = [f"{write_count(day['mended'])} mended", f"{write_count(day['looped'])} with loops"]
    tokens = write_count(day["prompt_tokens"] + day["completion_tokens"])
    return ", ".join(
        [f"last 24 h: {write_count(count)} requests", *shares, *things, f"{tokens} tokens", write_usd(day["cost_usd"])]
    )


def show_status(now: Record, url: str) -> Iterator[str]:
    """Write the server at this moment."""
    away = "" if now["state_actor"] == "up" else ", the state actor is away"
    yield f"{url}: {len(now['running'])} running{away}"
    yield from table(TIER_HEAD, tier_rows(now))
    for tier in now["tiers"]:
        if tier["reason"]:
            yield f"{tier['name']}: {plain(tier['reason'])}"
    yield sum_up_day(now["day"])
    memory = now["memory"]
    if memory is not None:
        for name, node in memory["nodes"].items():
            leased = f"{write_bytes(node['leased_bytes'])} of {write_bytes(node['budget_bytes'])}"
            yield f"memory of {plain(name)}: {node['level']}, {leased} leased"
        for tier, why in {**memory["waiting"], **memory["capped"]}.items():
            yield f"{tier}: {plain(why)}"


def show_request(report: Record) -> str:
    """Write a finished request in one line."""
    at = time.strftime("%m-%d %H:%M:%S", time.localtime(report["at"]))
    way = "→".join(tier if good else f"{tier}!" for tier, good in list_way(report)) or "–"
    tokens = sum((attempt["usage"] or {}).get("total_tokens", 0) for attempt in report["attempts"])
    marks = [
        *(["mended"] if report["repairs"] else []),
        *([f"loop {report['loop']}"] if report["loop"] else []),
        *([write_word(report["escalation_reason"])] if report["escalation_reason"] else []),
    ]
    told = f"{at}  {write_word(report['outcome']):<14}  {way:<22}  {write_ms(report['total_ms']):>9}"
    told += f"  {write_count(tokens):>8} tokens  {report['request_id']}  {report['session']}"
    return plain(told + (f"  ({', '.join(marks)})" if marks else ""))


def show_timeline(report: Record, timeline: Timeline) -> Iterator[str]:
    """Write one request in order: what happened, what was wrong, what was done."""
    took = f"{write_ms(report['total_ms'])}, of it this server {write_ms(report['overhead_ms'])}"
    yield plain(f"{report['request_id']}: {write_word(report['outcome'])} in {took}; session {report['session']}")
    for step in timeline.steps:
        failure = write_word(step.failure) if step.failure else "good"
        yield plain(f"{step.number}. {step.tier}: {failure}, {write_ms(step.elapsed_ms)} ({step.how})")
        if step.wait_ms >= 1:
            yield f"   it began {write_ms(step.wait_ms)} after what was before"
        for words in (*step.said, *(f"{name}: {text}" for name, text in step.texts.items())):
            yield f"   {plain(words)}"
        if step.usage:
            cached = step.usage["prompt_tokens_details"]["cached_tokens"]
            prompt = f"{write_count(step.usage['prompt_tokens'])} prompt tokens ({write_count(cached)} cached)"
            yield f"   {prompt}, {write_count(step.usage['completion_tokens'])} written, {write_usd(step.cost_usd)}"
    yield from (plain(words) for words in (*timeline.others, *(f"note: {note}" for note in report["notes"])))


def list_sessions(sessions: Sequence[Record]) -> list[str]:
    """Write sessions, a line each."""
    head = ("last used", "session", "key", "requests", "prompt", "written", "cost")
    return table(head, [_list_session(one) for one in sessions])


def _list_session(one: Record) -> tuple[str, ...]:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["used_s"]))
    tokens = (write_count(one["prompt_tokens"]), write_count(one["completion_tokens"]))
    return (used, one["session"], one["key"] or "–", write_count(one["requests"]), *tokens, write_usd(one["cost_usd"]))


def list_incidents(incidents: Sequence[Record]) -> list[str]:
    """Write incidents, a line each."""
    rows = [
        (
            time.strftime("%m-%d %H:%M:%S", time.localtime(one["at"])),
            one["kind"],
            write_word(one["reason"]),
            one["tier"] or "–",
            one["request_id"] or "–",
            one["session"] or "–",
        )
        for one in incidents
    ]
    return table(("at", "kind", "what", "tier", "request", "session"), rows)
