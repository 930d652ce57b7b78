"""The beginning of an incarnation: open the journal, or put it aside where it can't be read.

A journal that is damaged, or that another version wrote, is renamed and never written over; budgets then start empty. A
full disk or a locked file is no damage: that error is raised. A folder with several journals of an older version is
refused: this one alone may have forgotten what some of them have spent.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from dataclasses import replace
from pathlib import Path

from deployments.config.config_errors import ConfigError
from deployments.state.journal import Journal, JournalBounds, Restored

LOG = logging.getLogger("ray.serve")
JOURNAL = "ledger.sqlite"
_SUFFIXES = ("", "-wal", "-shm")


def refuse_parts(path: Path) -> None:
    """Refuse a journal next to others with parts of the ledger. Raises ConfigError, which says how to join them."""
    if _layout(path).endswith(" hub"):
        raise ConfigError(
            f"state.path: an older version kept the ledger in {path.parent} in several journals (state.shards): start "
            "that version once with state.shards: 1, which brings them together, or name another folder"
        )


def _layout(path: Path) -> str:
    """Read what an older version has written about its journals; nothing of a file that can't be read."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            row = db.execute("SELECT value FROM meta WHERE name = 'layout'").fetchone()
    except sqlite3.Error:
        return ""
    return str(row[0]) if row else ""


def open_journal(path: Path, incarnation: str, bounds: JournalBounds) -> tuple[Journal, Restored]:
    """Open the journal at `path` for `incarnation`, its owner; return it and what it holds. Raises OSError,
    sqlite3.OperationalError: the file can't be used now. ConfigError: as `refuse_parts`."""
    refuse_parts(path)
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
