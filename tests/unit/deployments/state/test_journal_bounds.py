"""The journal stays small: rows, ages, bytes, and events by snapshots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from deployments.state.journal import Journal, JournalBounds
from deployments.state.records import Query
from deployments.state.recovery import open_journal
from tests.support.incarnations import (
    CONFIG,
    Driver,
    S,
    ask,
    done,
    life,
    limits,
    settled,
    state_of,
)

OTHER = limits(replace(CONFIG, budget=replace(CONFIG.budget, reservation_ns=7 * S)), name="other limits")


def filled(path: Path, bounds: JournalBounds, count: int, at_s: float = 1.8e9) -> Journal:
    """A journal with so many requests, a second apart: each with a report, a session and an incident."""
    journal, _ = open_journal(path / "ledger.sqlite", "me", bounds)
    with journal.step():
        for n in range(count):
            one = done(f"r{n}", session=f"s{n}", incidents=1)
            journal.write_report("k", dict(one.report) | {"pad": "x" * 2000}, at_s + n)
            journal.write_incident(dict(one.incidents[0]) | {"at": at_s + n, "pad": "x" * 2000})
    return journal


def counts(journal: Journal) -> dict[str, int]:
    """The rows of each table."""
    tables = ("reports", "incidents", "sessions")
    return {name: journal._db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}


def test_numbers_are_bounded(tmp_path):
    """After a trim no table has more than its bound, and what is left is the newest."""
    journal = filled(tmp_path, JournalBounds(reports_max=7, incidents_max=9, sessions_max=5), 40)
    journal.trim(1.8e9 + 40)

    assert counts(journal) == {"reports": 7, "incidents": 9, "sessions": 5}
    assert [journal.report("k", f"r{n}") is not None for n in (32, 33, 39)] == [False, True, True]
    assert [one["request_id"] for one in journal.incidents(Query())] == [f"r{n}" for n in range(39, 30, -1)]
    assert [journal.session("k", f"s{n}") is not None for n in (34, 35, 39)] == [False, True, True]


def test_a_trim_within_the_bounds_drops_nothing(tmp_path):
    """At exactly its bounds a journal keeps everything."""
    journal = filled(tmp_path, JournalBounds(reports_max=40, incidents_max=40, sessions_max=40), 40)
    journal.trim(1.8e9 + 40)

    assert counts(journal) == {"reports": 40, "incidents": 40, "sessions": 40}


def test_ages_are_bounded(tmp_path):
    """What is older than its time goes; the rest stays."""
    bounds = JournalBounds(session_ttl_s=10.5, incidents_days=20.5 / 86_400)
    journal = filled(tmp_path, bounds, 40)
    journal.trim(1.8e9 + 40)

    assert counts(journal) == {"reports": 20, "incidents": 20, "sessions": 10}
    assert journal.report("k", "r39") is not None


def test_bytes_are_bounded(tmp_path):
    """One trim brings the file's content under its bound, whatever the excess; the newest is what stays."""
    journal = filled(tmp_path, JournalBounds(bytes_max=400_000), 500)
    assert journal.used_bytes > 2_000_000
    journal.trim(1.8e9 + 500)

    assert 200_000 < journal.used_bytes <= 400_000
    assert journal.report("k", "r499") is not None
    assert journal.incidents(Query())[0]["request_id"] == "r499"


def test_a_bound_that_nothing_can_keep_ends(tmp_path):
    """Where the books alone are over the bound, the trim ends with no reports and no incidents, and the books whole."""
    driver = Driver(life(tmp_path, bounds=JournalBounds(bytes_max=1)))
    driver.granted(ask())
    before = state_of(driver.actor)
    driver.put(done("r", incidents=3))
    driver.actor._journal.trim(0.0)

    assert counts(driver.actor._journal)["incidents"] == 0
    driver.actor = life(tmp_path)
    assert state_of(driver.actor) == before


def test_the_file_gets_smaller(tmp_path):
    """What a trim frees goes back to the disk."""
    journal = filled(tmp_path, JournalBounds(incidents_max=1, reports_max=1), 500)
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    before = journal.path.stat().st_size
    journal.trim(1.8e9)
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    assert journal.path.stat().st_size < before / 4


def test_events_are_bounded_by_snapshots(tmp_path, monkeypatch):
    """However many steps: the events since the snapshot stay near their bound."""
    monkeypatch.setattr("deployments.state.actor.SNAPSHOT_EVENTS", 50)
    driver = Driver(life(tmp_path))
    seen = []
    for _ in range(60):
        (grant,) = driver.granted(ask())
        driver.put(settled(grant, 0))
        seen.append(driver.actor._journal._db.execute("SELECT count(*) FROM events").fetchone()[0])

    assert max(seen) <= 50 + 4
    assert seen[-1] < len(seen) * 2
