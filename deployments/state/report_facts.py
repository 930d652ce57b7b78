"""What requests are found by: a narrow row beside each report, so that a list of a hundred thousand can be filtered.

    reports        one row each, about 1.5 kB of JSON          written in one transaction
    report_facts   the same ids: whose, where it ended, its marks, tokens and cost: about 150 bytes

A mark is one word that says what happened on the way: `escalated`, `mended`, `loop`, and each fault, flaw and reason by
its own name. Rows whose report is gone, since it was replaced or trimmed, are passed over by whoever reads and deleted
by `trim_facts`.

What must never happen: a word of a conversation in it: it holds names, numbers and enum values.

A row and the index cost the state actor 2 µs of CPU beside the 16 of the report (2026-11-24, 2 vCPU AMD EPYC, Linux;
`write_report` 2,000 times, ten a step, with and without them, the least of seven).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["FACTS_SCHEMA", "build_facts", "list_marks", "trim_facts", "write_facts"]

FACTS_SCHEMA = """
CREATE INDEX IF NOT EXISTS reports_by_request ON reports (request_id);
CREATE TABLE IF NOT EXISTS report_facts (
    id INTEGER PRIMARY KEY, at_s REAL NOT NULL, key TEXT NOT NULL, session TEXT NOT NULL, tier TEXT, outcome TEXT,
    marks TEXT NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL, cost_usd REAL);
"""
Facts = tuple[Any, ...]


def build_facts(key: str, report: Mapping[str, Any], at_s: float) -> Facts:
    """Build the row of a report, but for its id. Raises KeyError or TypeError where it is no report."""
    attempts = [*report["attempts"], *((report.get("judge") or {}).get("attempts", ()))]
    usages = [attempt["usage"] for attempt in attempts if attempt["usage"]]
    cached = sum((usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) for usage in usages)
    return (
        at_s,
        key,
        report["session"],
        report.get("tier"),
        report.get("outcome"),
        f" {' '.join(dict.fromkeys(list_marks(report)))} ",
        sum(usage["prompt_tokens"] for usage in usages),
        sum(usage["completion_tokens"] for usage in usages),
        cached,
        report.get("cost_usd"),
    )


def list_marks(report: Mapping[str, Any]) -> Iterator[str]:
    """List what happened on a request's way, in words; some may come twice."""
    if report.get("escalated_from"):
        yield "escalated"
    if report.get("retries"):
        yield "retried"
    if report.get("repairs"):
        yield "mended"
    if report.get("loop"):
        yield "loop"
    if report.get("budget"):
        yield "budget_warning"
    if report.get("escalation_reason"):
        yield str(report["escalation_reason"])
    for attempt in report["attempts"]:
        yield from (str(attempt[name]) for name in ("fault", "flaw") if attempt.get(name))


def write_facts(db: sqlite3.Connection, report_id: int | None, facts: Facts) -> None:
    """Write the row, inside of the transaction that writes the report."""
    db.execute("INSERT OR REPLACE INTO report_facts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (report_id, *facts))


def trim_facts(db: sqlite3.Connection) -> None:
    """Delete the rows that are older than every report."""
    db.execute("DELETE FROM report_facts WHERE id < coalesce((SELECT min(id) FROM reports), 9223372036854775807)")
