"""The beginning of an incarnation: open the journal, or put it aside where it can't be read.

A journal that is damaged, or that another version wrote, is renamed and never written over; budgets then start empty. A
full disk or a locked file is no damage: that error is raised.
"""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import replace
from pathlib import Path

from deployments.config.app_config import StateConfig
from deployments.state.journal import Journal, Restored

LOG = logging.getLogger("ray.serve")
JOURNAL = "ledger.sqlite"
_SUFFIXES = ("", "-wal", "-shm")


def open_journal(path: Path, incarnation: str, bounds: StateConfig) -> tuple[Journal, Restored]:
    """Open the journal at `path` for `incarnation`, its owner; return it and what it holds. Raises OSError,
    sqlite3.OperationalError: the file can't be used now."""
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
