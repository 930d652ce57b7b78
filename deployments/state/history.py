"""What operators look back on: requests, incidents, sessions and sums over time, read beside the one writer.

`History` has a read-only connection of its own, outside of the actor's lock. `report_facts` has a narrow row beside
each report, so that a list of a hundred thousand can be filtered: docs/decisions/061-history-beside-the-writer.md.
Invariants: a question never writes and always has a limit; `report_facts` has no word of a conversation.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from deployments.state.records import Query

_BUCKETS_MAX = 5_000
_BUSY_S = 2.0
_TOGETHER_MAX = 1_000
LIST_BYTES_MAX = 4 * 1024 * 1024  # a list of reports ends with the one that passes it
_TOKENS = ("prompt_tokens", "completion_tokens")
# Counting incidents by another index than `incidents_by_kind` would read every record: ten times as long.
HISTORY_SCHEMA = """
CREATE INDEX IF NOT EXISTS reports_by_request ON reports (request_id);
CREATE TABLE IF NOT EXISTS report_facts (
    id INTEGER PRIMARY KEY, at_s REAL NOT NULL, key TEXT NOT NULL, session TEXT NOT NULL, tier TEXT, outcome TEXT,
    marks TEXT NOT NULL, prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL, cost_usd REAL);
CREATE TRIGGER IF NOT EXISTS reports_gone AFTER DELETE ON reports
    BEGIN DELETE FROM report_facts WHERE id = old.id; END;
CREATE INDEX IF NOT EXISTS incidents_by_kind ON incidents (kind, at_s);
"""
# Fields of a report that mark it where they say something.
_MARKS = {"escalated_from": "escalated", "retries": "retried", "repairs": "mended", "loop": "loop"}
_SESSION_FIELDS = ("key", "session", "requests", *_TOKENS, "cost_usd", "last_request_id", "used_s")
# Whose helper a session is stands in its last report.
SELECT_SESSIONS = (
    f"SELECT {', '.join(_SESSION_FIELDS)}, (SELECT report FROM reports AS last WHERE last.key = sessions.key"
    " AND last.request_id = last_request_id) FROM sessions"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestQuery:
    """Which finished requests: every field that is set must match, the newest come first. `mark`: of `_list_marks`.
    `before`, `after`: the id to continue from, backwards or forwards."""

    key: str | None = None
    session: str | None = None
    tier: str | None = None
    outcome: str | None = None
    mark: str | None = None
    since_s: float | None = None
    until_s: float | None = None
    before: int | None = None
    after: int | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """Which sessions, the last used first. `before_s`: the moment to continue from; sessions of one moment come
    together, so a page may have more than `limit`."""

    key: str | None = None
    before_s: float | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """From when to when, in seconds since the epoch, in pieces. For counts of incidents each further field counts."""

    since_s: float
    until_s: float
    piece_s: float = 3600.0
    kind: str | None = None
    tier: str | None = None
    session: str | None = None
    key: str | None = None


class History:
    """The journal at `path`, which is there. May be asked from several threads; one at a time is answered."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_S, check_same_thread=False
        )

    def close(self) -> None:
        self._db.close()

    def ask(self, question: RequestQuery | Query | SessionQuery) -> list[dict[str, Any]]:
        """Return the rows that match, the newest first."""
        match question:
            case RequestQuery():
                return self._requests(question)
            case SessionQuery():
                return self._sessions(question)
            case Query():
                return self._incidents(question)

    def summarize(self, span: TimeSpan) -> dict[str, Any]:
        """Sum up the requests of a span by the tier that answered last, and its incidents by kind."""
        tiers = self._read(
            "SELECT coalesce(tier, ''), count(*), sum(outcome = 'answered'), sum(marks LIKE '% escalated %'),"
            " sum(marks LIKE '% mended %'), sum(marks LIKE '% loop %'), sum(prompt_tokens), sum(completion_tokens),"
            " sum(cached_tokens), sum(cost_usd) FROM report_facts WHERE at_s >= ? AND at_s < ? GROUP BY 1 ORDER BY 1",
            (span.since_s, span.until_s),
        )
        sums = ("requests", "answered", "escalated", "mended", "looped", *_TOKENS, "cached_tokens", "cost_usd")
        kinds = self._read(
            "SELECT kind, count(*) FROM incidents INDEXED BY incidents_by_kind WHERE at_s >= ? AND at_s < ?"
            " GROUP BY kind",
            (span.since_s, span.until_s),
        )
        return {"tiers": [dict(zip(("tier", *sums), row, strict=True)) for row in tiers], "incidents": dict(kinds)}

    def count_incidents(self, span: TimeSpan) -> list[tuple[int, str, int]]:
        """Count the incidents of a span: the number of the piece, the kind, how many; at most `_BUCKETS_MAX` rows."""
        names = [name for name in ("kind", "tier", "session", "key") if getattr(span, name) is not None]
        # What `incidents_by_kind` doesn't have is read in the records: few of a session, by its own index.
        index = "" if {*names} - {"kind"} else "INDEXED BY incidents_by_kind"
        terms = " AND ".join(["at_s >= ?1", "at_s < ?2", *(f"{name} = ?{at}" for at, name in enumerate(names, 4))])
        return self._read(
            f"SELECT CAST((at_s - ?1) / ?3 AS INTEGER), kind, count(*) FROM incidents {index} WHERE {terms}"
            f" GROUP BY 1, 2 ORDER BY 1, 2 LIMIT {_BUCKETS_MAX}",
            (span.since_s, span.until_s, max(1.0, span.piece_s), *(getattr(span, name) for name in names)),
        )

    def _requests(self, query: RequestQuery) -> list[dict[str, Any]]:
        terms, values = _write_terms(query, ("key", "session", "tier", "outcome"), "facts.")
        if query.mark is not None:
            terms.append("instr(facts.marks, ?)")
            values.append(f" {query.mark} ")
        if query.after is not None:
            terms.append("facts.id > ?")
            values.append(query.after)
        sql = (
            "SELECT facts.id, facts.at_s, reports.report FROM report_facts AS facts CROSS JOIN reports USING (id)"
            f" WHERE {' AND '.join(terms)} ORDER BY facts.id DESC LIMIT ?"
        )
        found, size = [], 0
        with self._lock, contextlib.closing(self._db.execute(sql, (*values, query.limit))) as rows:
            for number, at_s, report in rows:
                found.append({"id": number, "at": at_s} | orjson.loads(report))
                size += len(report)
                if size >= LIST_BYTES_MAX:
                    break
        return found

    def _incidents(self, query: Query) -> list[dict[str, Any]]:
        terms, values = _write_terms(query, ("kind", "tier", "session", "key", "request_id"))
        sql = f"SELECT id, record FROM incidents WHERE {' AND '.join(terms)} ORDER BY id DESC LIMIT ?"
        return [{"id": number} | orjson.loads(record) for number, record in self._read(sql, (*values, query.limit))]

    def _sessions(self, query: SessionQuery) -> list[dict[str, Any]]:
        match = "WHERE (?1 IS NULL OR key = ?1) AND (?2 IS NULL OR used_s < ?2)"
        last = f"SELECT used_s FROM sessions {match} ORDER BY used_s DESC LIMIT 1 OFFSET ?3 - 1"
        rows = self._read(
            f"{SELECT_SESSIONS} {match} AND used_s >= coalesce(({last}), 0) ORDER BY used_s DESC LIMIT ?3 + ?4",
            (query.key, query.before_s, query.limit, _TOGETHER_MAX),
        )
        return [describe_session(row) for row in rows]

    def _read(self, sql: str, values: Sequence[Any]) -> list[Any]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()


def describe_session(row: Sequence[Any]) -> dict[str, Any]:
    """Describe a row of `SELECT_SESSIONS`. `parent`: the session that it helps, or None."""
    *values, report = row
    parent = None if report is None else orjson.loads(report).get("parent")
    return dict(zip(_SESSION_FIELDS, values, strict=True)) | {"parent": parent}


def _write_terms(query: RequestQuery | Query, names: Sequence[str], prefix: str = "") -> tuple[list[str], list[Any]]:
    terms, values = ["1"], []
    for name in names:
        if (value := getattr(query, name)) is not None:
            terms.append(f"{prefix}{name} = ?")
            values.append(value)
    for term, bound in (("at_s >= ?", query.since_s), ("at_s < ?", query.until_s), ("id < ?", query.before)):
        if bound is not None:
            terms.append(f"{prefix}{term}")
            values.append(bound)
    return terms, values


def build_facts(key: str, report: Mapping[str, Any], at_s: float) -> tuple[Any, ...]:
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
        f" {' '.join(dict.fromkeys(_list_marks(report)))} ",
        sum(usage["prompt_tokens"] for usage in usages),
        sum(usage["completion_tokens"] for usage in usages),
        cached,
        report.get("cost_usd"),
    )


def _list_marks(report: Mapping[str, Any]) -> Iterator[str]:
    """List what happened to a request, in words; some may come twice."""
    yield from (mark for name, mark in _MARKS.items() if report.get(name))
    if report.get("budget"):
        yield "budget_warning"
    if report.get("escalation_reason"):
        yield str(report["escalation_reason"])
    for attempt in report["attempts"]:
        yield from (str(attempt[name]) for name in ("fault", "flaw") if attempt.get(name))
