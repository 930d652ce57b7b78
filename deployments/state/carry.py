"""Sessions that move when `state.shards` changes: each new part reads what the old parts have written.

Each change of layout begins an *era*. Eras are counted in `layouts.db`, which all parts of a folder share; the first
part to start under a new layout begins the next one. A journal remembers the era, and the layout, that it was last used
in. A part whose journal is of an older era looks into all journals of the folder, and for each session that belongs to
it takes the books of the latest era. Within one era the session's own shard knows better than the hub, which has the
sessions only in passing and may have forgotten them.

What was taken over is written down together with the era, in one transaction: a part that dies on the way begins
again. Of the others' journals only the owner is changed, so that a part of the old layout that still lives spends
nothing more behind the reader's back; the hub stays, it belongs to every layout with shards. A journal that can't be
read is left out, and the log says so.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

from deployments.state.journal import BUSY_S, Journal, Restored, restored
from deployments.state.private import make_private_file, make_private_folder
from reliability.admission import Admission
from reliability.ledger import Session, session_name

__all__ = ["carried_over", "era_of", "part_of"]

LOG = logging.getLogger("ray.serve")
NEVER = "0 whole"
ERAS = "CREATE TABLE IF NOT EXISTS eras (era INTEGER PRIMARY KEY, parts INTEGER NOT NULL)"


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """Where the books of a session stand: the greatest is right."""

    era: int
    own: bool  # a session's own part, not the hub
    used_ns: int
    spent: int
    reserved: int


def part_of(key: str, session: str, parts: int) -> int:
    """Which of `parts` shards a session belongs to: the same in every process."""
    return _part(session_name(key, session), parts)


def era_of(folder: Path, layout: str) -> int:
    """The number of the era that this layout belongs to; begins it where the last one had another number of parts."""
    parts = _parts(layout)
    make_private_folder(folder)
    make_private_file(folder / "layouts.db")
    with contextlib.closing(sqlite3.connect(folder / "layouts.db", timeout=BUSY_S, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute(ERAS)
        last = db.execute("SELECT era, parts FROM eras ORDER BY era DESC LIMIT 1").fetchone() or (0, 0)
        if parts is None:  # a hub: any number but one is its own, and a shard will write it down
            last = (last[0] + (last[1] <= 1), last[1])
        elif last[1] != parts:
            last = (last[0] + 1, parts)
            db.execute("INSERT INTO eras VALUES (?, ?)", last)
        db.execute("COMMIT")
    return int(last[0])


def carried_over(journal: Journal, held: Restored, state: Admission, layout: str, now_ns: int) -> Admission:
    """The state with the sessions that belong here, after a change of layout."""
    era = era_of(journal.path.parent, layout)
    known = journal.meta("layout")
    now = f"{era} {layout}"
    if known == now:
        return state
    if layout != "hub":
        state = _merged(state, _sources(known or NEVER, state), _others(journal.path, era, _parts(layout)), layout)
    with journal.step():
        journal.set_meta("layout", now)
        journal.set_meta("layout_before", known or "")
        journal.write_snapshot(now_ns, held.digest, held.config, state)
    return state


def _others(path: Path, era: int, parts: int | None) -> Iterator[tuple[str, Source]]:
    """The sessions of all other journals but those of the same layout, whose sessions are others."""
    for other in sorted(path.parent.glob("*.sqlite")):
        if other == path or other.stem.endswith(f"-of-{parts}"):
            continue
        try:
            yield from _sources_in(other, era)
        except (sqlite3.Error, ValueError) as error:
            LOG.error("the journal %s can't be read (%s): its sessions are not carried over", other, error)


def _sources_in(path: Path, era: int) -> Iterator[tuple[str, Source]]:
    """The sessions in another part's journal, which from then on is closed to its owner."""
    url = f"{path.absolute().as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(url, uri=True, timeout=BUSY_S, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        words = dict(db.execute("SELECT name, value FROM meta").fetchall())
        known = words.get("layout", NEVER)
        if known == f"{era} hub":  # it has just begun this era; its books are those of the one before
            known = words.get("layout_before") or known
        if not words.get("layout", NEVER).endswith(" hub"):
            db.execute("INSERT OR REPLACE INTO meta VALUES ('owner', ?)", (f"era {era}",))
        state = restored(db).state
        db.execute("COMMIT")
    yield from _sources(known, state)


def _sources(known: str, state: Admission) -> Iterator[tuple[str, Source]]:
    era, _, layout = known.partition(" ")
    for name, session in state.budget.sessions.items():
        yield name, Source(int(era), layout != "hub", session.used_ns, session.spent, session.reserved)


def _merged(
    state: Admission, own: Iterator[tuple[str, Source]], others: Iterator[tuple[str, Source]], layout: str
) -> Admission:
    best = dict(own)
    changed: set[str] = set()
    for name, source in others:
        if _belongs(name, layout) and (name not in best or best[name] < source):
            best[name] = source
            changed.add(name)
    sessions = state.budget.sessions
    for name in changed:
        sessions = sessions.put(name, _joined(sessions.get(name) or Session(), best[name]))
    return replace(state, budget=replace(state.budget, sessions=sessions))


def _joined(own: Session, source: Source) -> Session:
    """The books of `source` here. Its reservations are another actor's to close, so they count as spent, except for
    those that are open here too: a call has one in the hub and one in the shard."""
    spent = source.spent + max(0, source.reserved - own.reserved)
    return replace(own, spent=spent, used_ns=max(own.used_ns, source.used_ns))


def _belongs(name: str, layout: str) -> bool:
    part, between, parts = layout.partition("-of-")
    return not between or _part(name, int(parts)) == int(part)


def _parts(layout: str) -> int | None:
    """How many parts the layout has that this one belongs to; None for a hub, which doesn't know."""
    if layout == "hub":
        return None
    return int(layout.rpartition("-of-")[2]) if "-of-" in layout else 1


def _part(name: str, parts: int) -> int:
    return crc32(name.encode("utf-8", "surrogatepass")) % parts
