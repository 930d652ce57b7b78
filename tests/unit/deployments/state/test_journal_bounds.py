"""The journal stays small: rows, ages, bytes, and events by snapshots."""

import random
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.config.app_config import StateConfig
from deployments.state import journal
from deployments.state.history import History
from deployments.state.journal import _SIGN_OUT_SCHEMA, Journal, _SignOuts, open_journal
from deployments.state.records import Query
from tests.support.incarnations import ROOM, Driver, ask, done, life, settled, state_of


def filled(path: Path, bounds: StateConfig, count: int, at_s: float = 1.8e9) -> Journal:
    """A journal with so many requests, a second apart: each with a report, a session and an incident."""
    journal, _ = open_journal(path / "ledger.sqlite", "me", bounds)
    with journal.step():
        for n in range(count):
            one = done(f"r{n}", session=f"s{n}", incidents=1)
            journal.write_report("k", dict(one.report) | {"pad": "x" * 2000}, at_s + n)
            journal.write_incident(dict(one.incidents[0]) | {"at": at_s + n, "pad": "x" * 2000})
    return journal


def incidents(journal: Journal) -> list[dict[str, Any]]:
    """Its incidents, the newest first."""
    history = History(journal.path)
    try:
        return history.ask(Query())
    finally:
        history.close()


def counts(journal: Journal) -> dict[str, int]:
    """The rows of each table."""
    tables = ("reports", "incidents", "sessions")
    return {name: journal._db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}


def test_numbers_are_bounded(tmp_path):
    """After a trim no table has more than its bound, and what is left is the newest; at its bounds it keeps all."""
    journal = filled(tmp_path, StateConfig(reports_max=7, incidents_max=9, sessions_max=5), 40)
    journal.trim(1.8e9 + 40)

    assert counts(journal) == {"reports": 7, "incidents": 9, "sessions": 5}
    assert [journal.report("k", f"r{n}") is not None for n in (32, 33, 39)] == [False, True, True]
    assert [one["request_id"] for one in incidents(journal)] == [f"r{n}" for n in range(39, 30, -1)]
    assert [journal.session("k", f"s{n}") is not None for n in (34, 35, 39)] == [False, True, True]

    whole = filled(tmp_path / "whole", StateConfig(reports_max=40, incidents_max=40, sessions_max=40), 40)
    whole.trim(1.8e9 + 40)
    assert counts(whole) == {"reports": 40, "incidents": 40, "sessions": 40}


def test_ages_are_bounded(tmp_path):
    """What is older than its time goes; the rest stays."""
    bounds = StateConfig(session_ttl_s=10.5, incidents_days=20.5 / 86_400)
    journal = filled(tmp_path, bounds, 40)
    journal.trim(1.8e9 + 40)

    assert counts(journal) == {"reports": 20, "incidents": 20, "sessions": 10}
    assert journal.report("k", "r39") is not None


def test_bytes_are_bounded(tmp_path):
    """One trim brings the file's content under its bound, whatever the excess; the newest is what stays."""
    journal = filled(tmp_path, StateConfig.model_construct(journal_bytes_max=400_000), 500)
    assert journal.used_bytes > 2_000_000
    journal.trim(1.8e9 + 500)

    assert 200_000 < journal.used_bytes <= 400_000
    assert journal.report("k", "r499") is not None
    assert incidents(journal)[0]["request_id"] == "r499"


def test_a_bound_that_nothing_can_keep_ends(tmp_path):
    """Where the books alone are over the bound, the trim ends with no reports and no incidents, and the books whole."""
    driver = Driver(life(tmp_path, bounds=StateConfig.model_construct(journal_bytes_max=1)))
    driver.granted(ask())
    before = state_of(driver.actor)
    driver.put(done("r", incidents=3))
    driver.actor._journal.trim(0.0)

    assert counts(driver.actor._journal)["incidents"] == 0
    driver.actor = life(tmp_path)
    assert state_of(driver.actor) == before


def test_the_file_gets_smaller(tmp_path):
    """What a trim frees goes back to the disk."""
    journal = filled(tmp_path, StateConfig(incidents_max=1, reports_max=1), 500)
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    before = journal.path.stat().st_size
    journal.trim(1.8e9)
    journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    assert journal.path.stat().st_size < before / 4


def test_events_are_bounded_by_snapshots(tmp_path, monkeypatch):
    """However many steps: the events since the snapshot stay near their bound."""
    monkeypatch.setattr("deployments.state.actor._SNAPSHOT_EVENTS", 50)
    driver = Driver(life(tmp_path))
    seen = []
    for _ in range(60):
        (grant,) = driver.granted(ask())
        driver.put(settled(grant, 0))
        seen.append(driver.actor._journal._db.execute("SELECT count(*) FROM events").fetchone()[0])

    assert max(seen) <= 50 + 4
    assert seen[-1] < len(seen) * 2


WEEK_S = 7 * 86_400
moments = st.lists(st.integers(0, 3 * WEEK_S), max_size=30).map(sorted)


@given(moments, st.integers(1, 5))
@settings(max_examples=60)
def test_what_was_ended_stays_so_until_it_would_have_expired(times, rows_max):
    """Whenever cookies are made and ended, and however few rows there may be; the rows never exceed their bound, and a
    cookie that is made later than all that were ended is good."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(_SIGN_OUT_SCHEMA)
    ended, shelf = {}, _SignOuts(db)
    before, journal._SIGN_OUTS_MAX = journal._SIGN_OUTS_MAX, rows_max
    try:
        for number, now_s in enumerate(times):
            ended[f"n{number}"] = now_s + WEEK_S - number % 3
            shelf.add(f"n{number}", ended[f"n{number}"], now_s)
            living = {nonce: expires_s for nonce, expires_s in ended.items() if expires_s > now_s}
            assert all(shelf.has(nonce, expires_s) for nonce, expires_s in living.items())
            assert db.execute("SELECT count(*) FROM signed_out").fetchone()[0] <= rows_max + 1
            assert not shelf.has("another", now_s + WEEK_S + 1)
    finally:
        journal._SIGN_OUTS_MAX = before


PAGE_BYTES = 4096


@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_a_damaged_page_stops_nothing(number, dice):
    """Wherever in the file it is: the next life puts the file aside if it minds, which is its first incident, and steps
    and trims work."""
    with tempfile.TemporaryDirectory(dir=ROOM) as name:
        path = Path(name) / "ledger.sqlite"
        actor = life(path.parent)
        driver = Driver(actor)
        for n in range(30):
            driver.put(done(f"r{n}", f"s{n}", incidents=2))
        actor._journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        actor._journal.close()
        whole = bytearray(path.read_bytes())
        at = number % (len(whole) // PAGE_BYTES) * PAGE_BYTES
        whole[at : at + PAGE_BYTES] = random.Random(dice.random()).randbytes(PAGE_BYTES)
        path.write_bytes(whole)

        driver = Driver(life(path.parent))
        aside = [file.name for file in path.parent.glob("*.unreadable-1")]
        told = driver.actor.browse(Query(kind="journal"))
        assert [incident["evidence"]["put_aside"] for incident in told] == aside
        (grant,) = driver.granted(ask())
        driver.put(settled(grant), done("last", "s1", incidents=1))
        assert driver.actor.report("k", "last") is not None
        driver.actor._journal.trim(2e9)
        driver.actor._journal.close()
