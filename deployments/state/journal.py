"""The journal: what must survive a killed actor, a killed Router and a restarted server. SQLite in WAL mode.

A step is one transaction of the one owner, committed before it is answered; a former owner finds another name at its
next write, raises `Superseded` and changes nothing. With `synchronous=NORMAL` a commit survives the death of the
process; a power cut may cost the last moments. Over `journal_bytes_max` incidents and reports go, and
responses where there are none left: the oldest of the key that holds the most (`key_rows.py`).
Invariant: half of a step is never written.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from deployments.config.app_config import StateConfig
from deployments.running.own_folder import make_private_file, make_private_folder
from deployments.state.history import HISTORY_SCHEMA, SELECT_SESSIONS, build_facts, describe_session
from deployments.state.key_rows import KeyRows, count_held, drop_oldest
from deployments.state.response_shelf import SHELF_SCHEMA, ResponseShelf
from reliability.admission import events as replay
from reliability.admission.admit import AdmissionConfig, AdmissionState

_SIGN_OUT_SCHEMA = """
CREATE TABLE IF NOT EXISTS signed_out (nonce TEXT PRIMARY KEY, expires_s INTEGER NOT NULL) WITHOUT ROWID;
"""
_SIGN_OUTS_MAX = 1_000


class _SignOuts:
    """Cookies of the control room that were ended before their time. Over `_SIGN_OUTS_MAX` the rows that expire first
    go early; the row without a nonce then ends every cookie that expires no later. `add` runs inside of a step."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add(self, nonce: str, expires_s: int, now_s: float) -> None:
        self._db.execute("DELETE FROM signed_out WHERE expires_s <= ?", (now_s,))
        self._db.execute("INSERT OR REPLACE INTO signed_out VALUES (?, ?)", (nonce, expires_s))
        early = self._db.execute(
            "DELETE FROM signed_out WHERE nonce IN (SELECT nonce FROM signed_out WHERE nonce != ''"
            " ORDER BY expires_s DESC LIMIT -1 OFFSET ?) RETURNING expires_s",
            (_SIGN_OUTS_MAX,),
        ).fetchall()
        if early:
            keep = "ON CONFLICT (nonce) DO UPDATE SET expires_s = max(expires_s, ?1)"
            self._db.execute(f"INSERT INTO signed_out VALUES ('', ?1) {keep}", max(early))

    def has(self, nonce: str, expires_s: int) -> bool:
        sql = "SELECT 1 FROM signed_out WHERE nonce = ?1 OR (nonce = '' AND expires_s >= ?2) LIMIT 1"
        return self._db.execute(sql, (nonce, expires_s)).fetchone() is not None


LOG = logging.getLogger("ray.serve")
JOURNAL = "ledger.sqlite"
_SUFFIXES = ("", "-wal", "-shm")
SCHEMA_VERSION = 1
_BUSY_S = 5.0
_DAY_S = 86_400.0
_WAL_BYTES_MAX = 16 * 1024 * 1024
_PAGES_FREED = 2_000
_TRIM_SHARE = 16  # of the reports and incidents, where the file is over its bound: 0.15 s for 100,000

# What a record can be that the journal can't take. Anything else is the disk's.
_BAD_VALUES = (sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
UNWRITABLE = (TypeError, KeyError, ValueError, OverflowError, *_BAD_VALUES)

# Bounded in rows each, and in bytes together.
_COUNTED = (
    KeyRows("reports", "id", "at_s", "1"),
    KeyRows("incidents", "id", "at_s", "1"),
    KeyRows("sessions", "session", "used_s", "1"),
)
_WEIGHED = (
    KeyRows("reports", "id", "at_s", "length(report)"),
    KeyRows("incidents", "id", "at_s", "length(record)"),
)

_CONFIG: TypeAdapter[AdmissionConfig] = TypeAdapter(AdmissionConfig)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (seq INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, event BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS snapshot (
    id INTEGER PRIMARY KEY CHECK (id = 1), seq INTEGER NOT NULL, at_ns INTEGER NOT NULL,
    digest TEXT NOT NULL, config BLOB NOT NULL, state BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS steps (
    client TEXT PRIMARY KEY, number INTEGER NOT NULL, attempt INTEGER NOT NULL, grants BLOB NOT NULL,
    at_s REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (
    key TEXT NOT NULL, session TEXT NOT NULL, requests INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL, cost_usd REAL NOT NULL, last_request_id TEXT NOT NULL, used_s REAL NOT NULL,
    PRIMARY KEY (key, session)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sessions_by_use ON sessions (used_s);
CREATE INDEX IF NOT EXISTS sessions_by_key ON sessions (key, used_s);
CREATE TABLE IF NOT EXISTS reports (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, request_id TEXT NOT NULL, at_s REAL NOT NULL, report BLOB NOT NULL,
    UNIQUE (key, request_id));
CREATE INDEX IF NOT EXISTS reports_by_key ON reports (key, at_s, length(report));
CREATE TABLE IF NOT EXISTS incidents (
    id INTEGER PRIMARY KEY, at_s REAL NOT NULL, kind TEXT NOT NULL, tier TEXT, session TEXT, key TEXT,
    request_id TEXT, record BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS incidents_by_time ON incidents (at_s);
CREATE INDEX IF NOT EXISTS incidents_by_key ON incidents (key, at_s, length(record));
CREATE INDEX IF NOT EXISTS incidents_by_request ON incidents (request_id);
CREATE INDEX IF NOT EXISTS incidents_by_session ON incidents (session);
"""


class Superseded(RuntimeError):
    """Another process owns this journal now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Restored:
    """What a journal holds. `config`: what its state was decided by. `events`: how many were replayed on the snapshot.
    `at_ns`: the latest moment. `put_aside`: the name of an unreadable journal that was in its place."""

    config: AdmissionConfig = field(default_factory=AdmissionConfig)
    state: AdmissionState = field(default_factory=AdmissionState)
    events: int = 0
    at_ns: int = 0
    put_aside: str | None = None


def _read_journal(db: sqlite3.Connection) -> _Restored:
    """Read what an open journal holds. Raises ValueError where this version didn't write it."""
    row = db.execute("SELECT seq, at_ns, config, state FROM snapshot WHERE id = 1").fetchone()
    rows = db.execute("SELECT at_ns, event FROM events WHERE seq > ? ORDER BY seq", (row[0] if row else 0,))
    events = [(at_ns, replay.event_from_plain(orjson.loads(event))) for at_ns, event in rows]
    _, snapshot_ns, config, state = row or (0, 0, b"{}", None)
    limits = _CONFIG.validate_json(config)
    snapshot = AdmissionState() if state is None else replay.from_plain(orjson.loads(state))
    return _Restored(
        config=limits,
        state=replay.replay(snapshot, limits, events),
        events=len(events),
        at_ns=max([snapshot_ns, *(at_ns for at_ns, _ in events)]),
    )


class Journal:
    """One file, and from `begin` on the right to write to it."""

    def __init__(self, path: Path, owner: str, bounds: StateConfig) -> None:
        """Open or make the file. Raises OSError or sqlite3.OperationalError where that can't be."""
        make_private_folder(path.parent)
        make_private_file(path)
        self.path = path
        self.owner = owner
        self._bounds = bounds
        self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        self.sign_outs = _SignOuts(self._db)
        self.shelf = ResponseShelf(self._db, bytes_max=bounds.responses_bytes_max, ttl_s=bounds.responses_ttl_s)

    def begin(self) -> _Restored:
        """Become the owner; return what the file holds. Raises sqlite3.OperationalError: the file can't be used now.
        sqlite3.DatabaseError, ValueError: this version didn't write it."""
        self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute("PRAGMA recursive_triggers=ON")  # what REPLACE deletes takes its facts with it, too
        self._db.execute(f"PRAGMA journal_size_limit={_WAL_BYTES_MAX}")
        self._db.executescript(_SCHEMA + SHELF_SCHEMA + HISTORY_SCHEMA + _SIGN_OUT_SCHEMA)
        # A damaged page would fail every later step that meets it: 1 ms for a MiB.
        if (found := self._row("PRAGMA quick_check(1)")) != ("ok",):
            raise sqlite3.DatabaseError(f"{self.path} is damaged: {found[0] if found else 'no answer'}")
        version = self._meta("schema")
        if version not in (None, str(SCHEMA_VERSION)):
            raise ValueError(f"{self.path} was written by another version (schema {version}, this is {SCHEMA_VERSION})")
        with self._transaction():
            self._set("schema", str(SCHEMA_VERSION))
            self._set("owner", self.owner)
        return _read_journal(self._db)

    def close(self) -> None:
        self._db.close()

    # -- reading -----------------------------------------------------------------------------------------------

    def last_step(self, client: str) -> tuple[int, int, list[str]]:
        """Return a client's last step: its number, 0 for none, its attempt, and the names of its grants."""
        row = self._row("SELECT number, attempt, grants FROM steps WHERE client = ?", (client,))
        return (0, 0, []) if row is None else (row[0], row[1], orjson.loads(row[2]))

    def report(self, key: str, request_id: str) -> dict[str, Any] | None:
        row = self._row("SELECT report FROM reports WHERE key = ? AND request_id = ?", (key, request_id))
        return None if row is None else dict(orjson.loads(row[0]))

    def find_keys(self, kind: str, name: str) -> set[str]:
        """Return the keys that have a "request" or a "session" of this name."""
        table, column = {"request": ("reports", "request_id"), "session": ("sessions", "session")}[kind]
        return {key for (key,) in self._db.execute(f"SELECT DISTINCT key FROM {table} WHERE {column} = ?", (name,))}

    def session(self, key: str, session: str) -> dict[str, Any] | None:
        row = self._row(f"{SELECT_SESSIONS} WHERE key = ? AND session = ?", (key, session))
        return None if row is None else describe_session(row)

    def read_page_secret(self) -> str:
        """Read the secret that seals the control room's cookies; made the first time. Raises as `step`."""
        with self.step():
            found = self._meta("page_secret")
            if found is None:
                found = secrets.token_hex(32)
                self._set("page_secret", found)
        return found

    # -- writing -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def step(self) -> Iterator[Journal]:
        """Begin one transaction of the owner: all of it or nothing. Raises Superseded: another process has become the
        owner. sqlite3.Error: the disk failed; nothing was written."""
        with self._transaction():
            if self._meta("owner") != self.owner:
                raise Superseded("the ledger belongs to another process now: two servers need a state.path each")
            yield self

    def write_event(self, at_ns: int, event: replay.Event) -> None:
        """Inside of a step: write one event that changed the state."""
        row = (at_ns, orjson.dumps(replay.event_to_plain(event)))
        self._db.execute("INSERT INTO events (at_ns, event) VALUES (?, ?)", row)

    def write_snapshot(self, at_ns: int, digest: str, config: AdmissionConfig, state: AdmissionState) -> None:
        """Inside of a step: write the complete state, which makes the events before it needless."""
        numbers = "SELECT seq FROM events UNION ALL SELECT seq FROM snapshot"
        (seq,) = self._row(f"SELECT coalesce(max(seq), 0) FROM ({numbers})")
        snapshot = (seq, at_ns, digest, _CONFIG.dump_json(config), orjson.dumps(replay.to_plain(state)))
        self._db.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?, ?, ?, ?)", snapshot)
        # The last event stays, so that numbers never start again below the snapshot's.
        self._db.execute("DELETE FROM events WHERE seq < ?", (seq,))

    def write_step(self, client: str, number: int, attempt: int, grants: Sequence[str], at_s: float) -> None:
        """Inside of a step: note that it was done."""
        row = (client, number, attempt, orjson.dumps(list(grants)), at_s)
        self._db.execute("INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?)", row)

    def write_report(self, key: str, report: Mapping[str, Any], at_s: float) -> None:
        """Inside of a step: write a finished request into the reports and its session's totals. Raises one of
        UNWRITABLE: it isn't a report, or no JSON. The step can go on."""
        facts = build_facts(key, report, at_s)
        *_, prompt_tokens, completion_tokens, _, known_usd = facts
        session, request_id, cost_usd = report["session"], report["request_id"], known_usd or 0.0
        written = self._db.execute(
            "INSERT OR REPLACE INTO reports (key, request_id, at_s, report) VALUES (?, ?, ?, ?)",
            (key, request_id, at_s, orjson.dumps(report)),
        )
        row = (written.lastrowid, *facts)
        self._db.execute("INSERT OR REPLACE INTO report_facts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._db.execute(
            "INSERT INTO sessions VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (key, session) DO UPDATE SET"
            " requests = requests + 1, prompt_tokens = prompt_tokens + ?3,"
            " completion_tokens = completion_tokens + ?4, cost_usd = cost_usd + ?5, last_request_id = ?6, used_s = ?7",
            (key, session, prompt_tokens, completion_tokens, cost_usd, request_id, at_s),
        )

    def write_incident(self, record: Mapping[str, Any]) -> None:
        """Inside of a step: write one incident. Raises as `write_report`."""
        names = ("at", "kind", "tier", "session", "key", "request_id")
        self._db.execute(
            "INSERT INTO incidents (at_s, kind, tier, session, key, request_id, record) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*(record.get(name) for name in names), orjson.dumps(record)),
        )

    def knows_incident(self, record: Mapping[str, Any]) -> bool:
        """Return whether an incident of this kind stands under this request id."""
        names = (record.get("request_id"), record.get("kind"))
        return self._row("SELECT 1 FROM incidents WHERE request_id = ? AND kind = ? LIMIT 1", names) is not None

    def forget_session(self, key: str, session: str) -> None:
        """Inside of a step: let its totals start again."""
        self._db.execute("DELETE FROM sessions WHERE key = ? AND session = ?", (key, session))

    # -- bounds ------------------------------------------------------------------------------------------------

    def trim(self, now_s: float) -> None:
        """Delete what is too old or too much. Raises as `step`."""
        bounds = self._bounds
        with self.step():
            self._db.execute("DELETE FROM sessions WHERE used_s < ?", (now_s - bounds.session_ttl_s,))
            for table, days in (("incidents", bounds.incidents_days), ("reports", bounds.incidents_days), ("steps", 1)):
                self._db.execute(f"DELETE FROM {table} WHERE at_s < ?", (now_s - days * _DAY_S,))
            self.shelf.trim(now_s)
            mosts = (bounds.reports_max, bounds.incidents_max, bounds.sessions_max)
            for kind, most in zip(_COUNTED, mosts, strict=True):
                if self._row(f"SELECT count(*) FROM {kind.table}")[0] > most:
                    drop_oldest(self._db, (kind,), count_held(self._db, (kind,)), most)
            while self.used_bytes > bounds.journal_bytes_max and self._drop_oldest():
                pass
        # One page a row, but rows without columns: `execute` would stop at the first.
        self._db.executescript(f"PRAGMA incremental_vacuum({_PAGES_FREED})")

    @property
    def used_bytes(self) -> int:
        """The bytes of the file that hold something."""
        pages, free, size = (self._row(f"PRAGMA {name}")[0] for name in ("page_count", "freelist_count", "page_size"))
        return int((pages - free) * size)

    def _drop_oldest(self) -> bool:
        """Delete a share of the reports and incidents, or of the responses; return False where there are none."""
        held = count_held(self._db, _WEIGHED)
        used = held.total()
        return drop_oldest(self._db, _WEIGHED, held, used - -(-used // _TRIM_SHARE)) > 0 or self.shelf.drop_share()

    # -- the file ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk may have rolled it back already
                self._db.execute("ROLLBACK")
            raise

    def _meta(self, name: str) -> str | None:
        row = self._row("SELECT value FROM meta WHERE name = ?", (name,))
        return None if row is None else str(row[0])

    def _set(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def _row(self, sql: str, values: Sequence[Any] = ()) -> Any:
        return self._db.execute(sql, values).fetchone()


def open_journal(path: Path, incarnation: str, bounds: StateConfig) -> tuple[Journal, _Restored]:
    """Open the journal at `path` for `incarnation`, its owner; return it and what it holds. One that is damaged, or
    that another version wrote, is renamed and never written over; budgets then start empty. Raises OSError,
    sqlite3.OperationalError: the file can't be used now; a full disk or a locked file is no damage."""
    journal = Journal(path, incarnation, bounds)
    try:
        return journal, journal.begin()
    except (sqlite3.DatabaseError, ValueError) as error:
        if isinstance(error, sqlite3.OperationalError):
            journal.close()
            raise
        aside = _put_aside(path, error)
    # Closed after the renaming: SQLite tidies up after its last connection, but leaves files alone that have moved.
    journal.close()
    journal = Journal(path, incarnation, bounds)
    return journal, replace(journal.begin(), put_aside=aside)


def _put_aside(path: Path, error: Exception) -> str:
    number = 1
    while (aside := path.with_name(f"{path.name}.unreadable-{number}")).exists():
        number += 1
    LOG.error("the journal %s can't be read (%s): put aside as %s; budgets start empty", path, error, aside.name)
    for suffix in _SUFFIXES:
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside.name
