"""Cookies of the control room that were ended before their time: they are sealed, so only a list can end them.

A row has the cookie's nonce and when it would have expired, when the row goes as well. Over `ROWS_MAX` the rows that
expire first go early; the row without a nonce then ends every cookie that expires no later than they would have.
Invariant: a cookie that was ended is never good again.
"""

from __future__ import annotations

import sqlite3

SIGN_OUT_SCHEMA = """
CREATE TABLE IF NOT EXISTS signed_out (nonce TEXT PRIMARY KEY, expires_s INTEGER NOT NULL) WITHOUT ROWID;
"""
ROWS_MAX = 1_000


class SignOuts:
    """The rows in the journal's file. `add` runs inside of a step of the journal."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add(self, nonce: str, expires_s: int, now_s: float) -> None:
        """End a cookie."""
        self._db.execute("DELETE FROM signed_out WHERE expires_s <= ?", (now_s,))
        self._db.execute("INSERT OR REPLACE INTO signed_out VALUES (?, ?)", (nonce, expires_s))
        early = self._db.execute(
            "DELETE FROM signed_out WHERE nonce IN (SELECT nonce FROM signed_out WHERE nonce != ''"
            " ORDER BY expires_s DESC LIMIT -1 OFFSET ?) RETURNING expires_s",
            (ROWS_MAX,),
        ).fetchall()
        if early:
            self._db.execute(
                "INSERT INTO signed_out VALUES ('', ?1)"
                " ON CONFLICT (nonce) DO UPDATE SET expires_s = max(expires_s, ?1)",
                (max(early)[0],),
            )

    def has(self, nonce: str, expires_s: int) -> bool:
        """Return whether a cookie was ended."""
        row = self._db.execute(
            "SELECT 1 FROM signed_out WHERE nonce = ?1 OR (nonce = '' AND expires_s >= ?2) LIMIT 1", (nonce, expires_s)
        ).fetchone()
        return row is not None
