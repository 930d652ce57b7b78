"""What one API key stores pushes out nothing of another that stores less: rows, sessions, windows, reports."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.config.app_config import StateConfig
from deployments.state.actor import _Windows
from deployments.state.history import History, RequestQuery, TimeSpan
from deployments.state.journal import Journal
from deployments.state.key_rows import KeyRows, count_held, drop_oldest
from deployments.state.records import KeptResponse
from reliability.admission.ledger import Bounds, Budget
from reliability.key_shares import find_level
from reliability.loops import LoopConfig
from reliability.sessions import Conversations, read_trail
from tests.unit.deployments.state.test_actor_windows import item
from tests.unit.deployments.state.test_history import report

T = 1.8e9
ONE = (KeyRows("one", "name", "age", "size"),)
BOTH = (*ONE, KeyRows("two", "name", "age", "size"))
ROWS = st.lists(st.tuples(st.sampled_from("abc") | st.none(), st.booleans(), st.integers(1, 9)), max_size=30)


@given(ROWS, st.integers(0, 120), st.sampled_from([ONE, BOTH]))
def test_the_key_that_holds_the_most_loses_its_oldest(rows, most: int, kinds: tuple[KeyRows, ...]) -> None:
    """Law, in one table or in two that share a bound: all of it is within the bound; what stays of a key are its
    newest; who held no more than its share lost nothing; what is counted is what is there."""
    db = sqlite3.connect(":memory:")
    for table in ("one", "two"):
        db.execute(f"CREATE TABLE {table} (key TEXT, name INTEGER, age REAL, size INTEGER)")
    written: dict[Any, list[tuple[int, int]]] = {}
    for number, (key, second, size) in enumerate(rows):
        table = "two" if second and len(kinds) > 1 else "one"
        db.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", (key, number, number, size))
        written.setdefault(key, []).append((number, size))
    held = count_held(db, kinds)
    before, level = Counter(held), find_level(held, most)
    dropped = drop_oldest(db, kinds, held, most)
    left: dict[Any, list[int]] = {key: [] for key in written}
    for kind in kinds:
        for key, name in db.execute(f"SELECT key, name FROM {kind.table}"):
            left[key].append(name)

    assert +held == +count_held(db, kinds)
    assert held.total() <= most
    assert dropped == len(rows) - sum(map(len, left.values()))
    for key, names in left.items():
        assert sorted(names) == [name for name, _ in written[key]][len(written[key]) - len(names) :]
        assert before[key] > level or len(names) == len(written[key])


def open_journal(folder: Path, **bounds: Any) -> Journal:
    journal = Journal(folder / "ledger.sqlite", "me", StateConfig.model_construct(**bounds))
    journal.begin()
    return journal


def write(journal: Journal, key: str, names: Iterable[str], **more: Any) -> None:
    with journal.step():
        for number, name in enumerate(names):
            at_s = T + number + (1_000 if key == "b" else 0)
            journal.write_report(key, report(name, session=name, **more), at_s)
            journal.write_incident({"at": at_s, "kind": "flaw", "key": key, "request_id": name, "session": name})


FEW, MANY = ["a0", "a1"], [f"b{number}" for number in range(60)]


def names_in(journal: Journal, table: str, column: str, key: str) -> set[str]:
    return {name for (name,) in journal._db.execute(f"SELECT {column} FROM {table} WHERE key = ?", (key,))}


def flood_journal(table: str, column: str, bound: str) -> Callable[[Path], tuple[set[str], int]]:
    def flood(folder: Path) -> tuple[set[str], int]:
        journal = open_journal(folder, **{bound: 20})
        write(journal, "a", FEW)
        write(journal, "b", MANY)
        journal.trim(T + 2_000)
        count = journal._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        assert names_in(journal, table, column, "b") == set(MANY[-18:])
        return names_in(journal, table, column, "a"), count

    return flood


def flood(windows: _Windows, text: str) -> tuple[set[str], int]:
    for key, names, said in (("a", FEW, "x"), ("b", MANY, text)):
        for name in names:
            windows.take(replace(item(name, 1, said), key=key), LoopConfig())
    assert windows._shares.held.total() <= 40_000
    return {name for name in FEW if windows.find("a", name).kept}, len(windows._windows)


def flood_windows(_: Path) -> tuple[set[str], int]:
    return flood(_Windows(20), "x")


def flood_characters(_: Path) -> tuple[set[str], int]:
    return flood(_Windows(1_000, chars_max=40_000), "x" * 3_000)


def flood_conversations(_: Path) -> tuple[set[str], int]:
    known, found = Conversations(20, 10**18), {}
    for turn in range(2):
        for name in FEW:
            trail = read_trail([{"role": "user", "content": f"the task {name} of A"}], "")
            session = known.find("a", trail, name, turn)
            found.setdefault(name, session)
        for name in MANY if not turn else ():
            known.find("b", read_trail([{"role": "user", "content": f"classify {name}"}], ""), name, turn)
    return {name for name, session in found.items() if ("a", session) in known._known}, len(known)


def flood_ledger(_: Path) -> tuple[set[str], int]:
    bounds, budget = Bounds(sessions_max=20), Budget()
    for at, (key, names) in enumerate((("a", FEW), ("b", MANY))):
        for number, name in enumerate(names):
            budget = budget.charge_unreserved(bounds, key, name, 5, 1_000 * at + number)
    return {name for name in FEW if budget.session_of(bounds, "a", name, 2_000).spent}, budget.sessions.count


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(flood_journal("reports", "request_id", "reports_max"), id="reports"),
        pytest.param(flood_journal("incidents", "request_id", "incidents_max"), id="incidents"),
        pytest.param(flood_journal("sessions", "session", "sessions_max"), id="sessions"),
        flood_windows,
        flood_characters,
        flood_conversations,
        flood_ledger,
    ],
)
def test_many_small_requests_of_one_key_push_out_nothing_of_another(flood, tmp_path) -> None:
    """Law: over a bound in number or in characters the key that holds the most loses its oldest, also where all of
    another's are older."""
    left, count = flood(tmp_path)

    assert left == set(FEW)
    assert count <= 20


def test_reports_without_end_push_out_neither_responses_nor_another_s_reports(tmp_path) -> None:
    """Law: over the bound of the whole file the key whose reports and incidents are largest loses its oldest;
    responses, which have their own bound, stay. A report that goes takes its facts with it, and no other's."""
    journal = open_journal(tmp_path, journal_bytes_max=2_000_000)
    write(journal, "a", FEW)
    with journal.step():
        journal.shelf.write(KeptResponse("a", "resp", "s", None, T, 10, b"x" * 50_000))
    write(journal, "b", MANY, notes=["x" * 100_000])
    journal.trim(T + 2_000)
    ids = {row for (row,) in journal._db.execute("SELECT id FROM reports")}

    assert journal.used_bytes <= 2_000_000
    assert journal.shelf.find("a", "resp") is not None
    assert names_in(journal, "reports", "request_id", "a") == set(FEW)
    assert MANY[-1] in names_in(journal, "reports", "request_id", "b")
    assert {row for (row,) in journal._db.execute("SELECT id FROM report_facts")} == ids


def test_a_report_that_is_written_again_counts_once(tmp_path) -> None:
    """Law: a Router that sends a report again replaces it, in the sums of a day, too."""
    journal = open_journal(tmp_path)
    write(journal, "a", ["r", "r"])
    history = History(journal.path)

    assert sum(row["requests"] for row in history.summarize(TimeSpan(since_s=T - 1, until_s=T + 9))["tiers"]) == 1
    history.close()


def test_a_list_of_reports_is_bounded_in_bytes(tmp_path, monkeypatch) -> None:
    """Law: a page ends with the report that passes the bound; the next page goes on behind it. Counter-case: small
    reports fill the page."""
    monkeypatch.setattr("deployments.state.history.LIST_BYTES_MAX", 250_000)
    journal = open_journal(tmp_path)
    write(journal, "b", MANY[:10], notes=["x" * 100_000])
    write(journal, "a", FEW)
    history = History(journal.path)
    pages, before = [], None
    while page := history.ask(RequestQuery(key="b", before=before)):
        pages.append([row["request_id"] for row in page])
        before = page[-1]["id"]

    assert [name for page in pages for name in page] == MANY[:10][::-1]
    assert max(map(len, pages)) == 3
    assert len(history.ask(RequestQuery(key="a"))) == 2
    history.close()
