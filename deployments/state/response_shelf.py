"""The shelf of the journal: responses that clients may continue (`previous_response_id`), read again, or delete.

Each row holds its own input and output only; a conversation is read by walking back along `previous`. Above `bytes_max`
the API key that holds the most loses its oldest rows; the bytes of each key are known without a look at the rows.
Invariant: no key sees a row of another, or pushes it out while it holds more.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple

from deployments.state.key_rows import KeyRows, count_held, drop_oldest
from deployments.state.records import KeptResponse

SHELF_SCHEMA = """
CREATE TABLE IF NOT EXISTS responses (
    id TEXT NOT NULL, key TEXT NOT NULL, session TEXT NOT NULL, previous TEXT, at_s REAL NOT NULL,
    size INTEGER NOT NULL, record BLOB NOT NULL, UNIQUE (key, id));
CREATE INDEX IF NOT EXISTS responses_by_time ON responses (at_s);
CREATE INDEX IF NOT EXISTS responses_by_key ON responses (key, at_s, length(record));
"""
_ROWS = (KeyRows("responses", "id", "at_s", "length(record)"),)
_COLUMNS = "key, id, session, previous, at_s, size, record"
# What one call hands back at most, beyond its first row.
_WALK_ROWS = 64
_WALK_BYTES = 1024 * 1024
_TRIM_SHARE = 4


class ResponseShelf:
    """The rows in the journal's file. Writes happen inside of a step of the journal."""

    def __init__(self, db: sqlite3.Connection, *, bytes_max: int, ttl_s: float) -> None:
        self._db, self._bytes_max, self._ttl_s = db, bytes_max, ttl_s
        self._held: Counter[str] | None = None  # by key; None: to be counted, a transaction may have been taken back

    def write(self, response: KeptResponse) -> None:
        """Keep one, and drop the oldest for it; the same one again replaces itself. One over the bound isn't kept."""
        with self._count_bytes() as held:
            self._delete(held, response.key, response.id)
            if len(response.record) <= self._bytes_max:  # else not a byte of it reaches the disk
                self._db.execute(f"INSERT INTO responses ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(response))
                held[response.key] += len(response.record)
                drop_oldest(self._db, _ROWS, held, self._bytes_max)

    def find(self, key: str, response_id: str) -> KeptResponse | None:
        row = self._db.execute(
            f"SELECT {_COLUMNS} FROM responses WHERE key = ? AND id = ?", (key, response_id)
        ).fetchone()
        return None if row is None else KeptResponse(*row)

    def walk(self, key: str, response_id: str) -> list[KeptResponse]:
        """Walk back from one along `previous`, the newest first, to the beginning or as far as one call may."""
        found: list[KeptResponse] = []
        name: str | None = response_id
        while name is not None and len(found) < _WALK_ROWS:
            row = self.find(key, name)
            if row is None:
                break
            found.append(row)
            name = row.previous
            if sum(len(each.record) for each in found) >= _WALK_BYTES:
                break
        return found

    def delete(self, key: str, response_id: str) -> bool:
        with self._count_bytes() as held:
            return self._delete(held, key, response_id)

    def _delete(self, held: Counter[str], key: str, response_id: str) -> bool:
        sql = "DELETE FROM responses WHERE key = ? AND id = ? RETURNING length(record)"
        row = self._db.execute(sql, (key, response_id)).fetchone()
        held[key] -= row[0] if row else 0
        return row is not None

    def trim(self, now_s: float) -> None:
        self._held = None
        self._db.execute("DELETE FROM responses WHERE at_s < ?", (now_s - self._ttl_s,))

    def drop_share(self) -> bool:
        """Delete a share of the rows, the oldest; return False where there are none."""
        with self._count_bytes() as held:
            used = held.total()
            drop_oldest(self._db, _ROWS, held, used - -(-used // _TRIM_SHARE))
        return held.total() < used

    @contextlib.contextmanager
    def _count_bytes(self) -> Iterator[Counter[str]]:
        """Yield how many bytes each key holds, to be kept up; where that fails they are counted anew."""
        held, self._held = self._held, None
        if held is None:
            held = count_held(self._db, _ROWS)
        yield held
        self._held = held
