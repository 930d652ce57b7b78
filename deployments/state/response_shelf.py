"""The shelf of the journal: responses that clients may go on from (`previous_response_id`), read again, or delete.

    responses   one row each: its key, its session, the response that it goes on from, its input and itself, compressed

Each row holds its own input and output only, so a conversation of n turns takes n rows and not their sum of sums; who
needs all of it walks back along `previous`, a bounded piece at a time, since the state actor has others to answer.

Bounds: `bytes_max` of all rows, for which the oldest go in the same transaction; `ttl_s` of each. What must never
happen: a row that another key can see.
"""

from __future__ import annotations

import sqlite3
from dataclasses import astuple

from deployments.state.records import KeptResponse

__all__ = ["SHELF_SCHEMA", "ResponseShelf"]

SHELF_SCHEMA = """
CREATE TABLE IF NOT EXISTS responses (
    id TEXT NOT NULL, key TEXT NOT NULL, session TEXT NOT NULL, previous TEXT, at_s REAL NOT NULL,
    size INTEGER NOT NULL, record BLOB NOT NULL, UNIQUE (key, id));
CREATE INDEX IF NOT EXISTS responses_by_time ON responses (at_s);
"""
COLUMNS = "key, id, session, previous, at_s, size, record"
# What one call hands back at most, beyond its first row.
WALK_ROWS = 64
WALK_BYTES = 1024 * 1024
DROPPED_ROWS = 16  # looked at together when room is made
TRIM_SHARE = 4


class ResponseShelf:
    """The rows in the journal's file. Whoever writes does it inside of a step of the journal."""

    def __init__(self, db: sqlite3.Connection, *, bytes_max: int, ttl_s: float) -> None:
        self._db, self._bytes_max, self._ttl_s = db, bytes_max, ttl_s
        self._used: int | None = None  # None: to be counted; a transaction may have been taken back

    def write(self, response: KeptResponse) -> None:
        """Keep one, and let the oldest go for it; the same one again replaces itself. One that alone is over the
        bound isn't kept."""
        used, self._used = self._count_bytes(), None
        old = self._db.execute(
            "SELECT length(record) FROM responses WHERE key = ? AND id = ?", (response.key, response.id)
        ).fetchone()
        used += len(response.record) - (old[0] if old else 0)
        self._db.execute(
            "INSERT OR REPLACE INTO responses (" + COLUMNS + ") VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(response)
        )
        self._used = self._drop_oldest(used, self._bytes_max)

    def find(self, key: str, response_id: str) -> KeptResponse | None:
        """Find one of this key."""
        row = self._db.execute(
            f"SELECT {COLUMNS} FROM responses WHERE key = ? AND id = ?", (key, response_id)
        ).fetchone()
        return None if row is None else KeptResponse(*row)

    def walk(self, key: str, response_id: str) -> list[KeptResponse]:
        """Walk back from one along `previous`, the newest first, until the beginning or as far as one call may."""
        found: list[KeptResponse] = []
        name: str | None = response_id
        while name is not None and len(found) < WALK_ROWS:
            row = self.find(key, name)
            if row is None:
                break
            found.append(row)
            name = row.previous
            if sum(len(each.record) for each in found) >= WALK_BYTES:
                break
        return found

    def delete(self, key: str, response_id: str) -> bool:
        """Delete one; False where there is none."""
        self._used = None
        done = self._db.execute("DELETE FROM responses WHERE key = ? AND id = ?", (key, response_id))
        return done.rowcount > 0

    def trim(self, now_s: float) -> None:
        """Let go what is too old."""
        self._used = None
        self._db.execute("DELETE FROM responses WHERE at_s < ?", (now_s - self._ttl_s,))

    def drop_share(self) -> bool:
        """Let a share of the rows go, the oldest; return False where there are none."""
        used, self._used = self._count_bytes(), None
        self._used = self._drop_oldest(used, used - -(-used // TRIM_SHARE))
        return self._used < used

    def _count_bytes(self) -> int:
        if self._used is None:
            self._used = int(self._db.execute("SELECT coalesce(sum(length(record)), 0) FROM responses").fetchone()[0])
        return self._used

    def _drop_oldest(self, used: int, bytes_max: int) -> int:
        """Delete the oldest rows until the rest fits; return what the rest takes."""
        while used > bytes_max:
            rows = self._db.execute(
                "SELECT rowid, length(record) FROM responses ORDER BY at_s LIMIT ?", (DROPPED_ROWS,)
            ).fetchall()
            for rowid, size in rows:
                if used <= bytes_max:
                    break
                self._db.execute("DELETE FROM responses WHERE rowid = ?", (rowid,))
                used -= size
            if not rows:
                return 0
        return used
