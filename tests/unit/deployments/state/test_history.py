"""Looking back: what is asked for is what comes, from beside the writer."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.config.app_config import StateConfig
from deployments.state.history import History, RequestQuery, SessionQuery, TimeSpan, _list_marks, build_facts
from deployments.state.journal import Journal, open_journal
from deployments.state.records import Query
from tests.support.room_rig import attempt, report

T = 1.8e9
FAULTY = [attempt("fast", fault="timeout"), attempt("standard")]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """Six requests of two sessions and two keys, a second apart; every other one escalated, the last refused."""
    made, _ = open_journal(tmp_path / "ledger.sqlite", "me", StateConfig())
    with made.step():
        for n in range(6):
            away = {"escalated_from": "fast", "escalation_reason": "timeout", "tier": "standard", "attempts": FAULTY}
            changes: dict[str, Any] = away if n % 2 else {}
            outcome = "budget" if n == 5 else "answered"
            one = report(f"r{n}", session=f"s{n % 2}", cost_usd=0.5 if n % 2 else None, outcome=outcome, **changes)
            made.write_report("k" if n < 4 else "other", one, T + n)
            made.write_incident({"at": T + n, "kind": "fault" if n % 2 else "loop", "request_id": f"r{n}"})
    yield made
    made.close()


@pytest.fixture
def history(journal: Journal) -> Iterator[History]:
    one = History(journal.path)
    yield one
    one.close()


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["request_id"] for row in rows]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, "543210"), ({"session": "s0"}, "420"), ({"key": "other"}, "54"), ({"tier": "standard"}, "531"),
        ({"outcome": "budget"}, "5"), ({"mark": "escalated", "outcome": "answered"}, "31"),
        ({"mark": "timeout"}, "531"), ({"mark": "time"}, ""), ({"mark": "%"}, ""),
        ({"since_s": T + 2, "until_s": T + 4}, "32"), ({"before": 3}, "10"), ({"after": 4}, "54"), ({"limit": 2}, "54"),
    ],
)  # fmt: skip
def test_requests_are_found_by_what_they_are(history, query, found):
    """Every filter counts, the newest come first, and a mark is a whole word."""
    assert names(history.ask(RequestQuery(**query))) == [f"r{n}" for n in found]


def test_sessions_are_listed_by_their_last_use(history):
    """With what they have used; those of one key alone where one is named."""
    listed = [f"{row['session']} of {row['key']}" for row in history.ask(SessionQuery())]

    assert listed == ["s1 of other", "s0 of other", "s1 of k", "s0 of k"]
    assert [row["requests"] for row in history.ask(SessionQuery(key="k"))] == [2, 2]
    assert names([{"request_id": row["session"]} for row in history.ask(SessionQuery(before_s=T + 4))]) == ["s1", "s0"]


def test_a_session_says_whose_helper_it_is(journal, history):
    """As its last report does, in the list and alone; where that report has gone it is nobody's."""
    with journal.step():
        journal.write_report("k", report("h", session="s9.a", parent="s9"), T + 10)

    rows = {row["session"]: row["parent"] for row in history.ask(SessionQuery(key="k"))}
    assert rows == {"s0": None, "s1": None, "s9.a": "s9"}
    assert journal.session("k", "s9.a")["parent"] == "s9"


def test_sessions_of_one_moment_are_all_listed(journal, history):
    """Those that were used in one step have one moment: no page ends within it, and the next one misses nobody."""
    with journal.step():
        for n in range(5):
            journal.write_report("k", report(f"x{n}", session=f"x{n}"), T + 10)
    first = history.ask(SessionQuery(limit=2))
    rest = history.ask(SessionQuery(before_s=first[-1]["used_s"], limit=5))

    assert {row["session"] for row in first} == {f"x{n}" for n in range(5)}
    assert len(rest) == 4
    assert {row["used_s"] for row in rest} == {T + 2, T + 3, T + 4, T + 5}


def test_a_summary_adds_up(history):
    """Requests by the tier that they ended at, incidents by kind, of the span alone."""
    summary = history.summarize(TimeSpan(since_s=T, until_s=T + 10))
    tiers = {row["tier"]: row for row in summary["tiers"]}

    assert {name: row["requests"] for name, row in tiers.items()} == {"fast": 3, "standard": 3}
    assert (tiers["standard"]["escalated"], tiers["standard"]["answered"]) == (3, 2)
    assert (tiers["standard"]["cost_usd"], tiers["fast"]["cost_usd"]) == (1.5, None)
    assert summary["incidents"] == {"fault": 3, "loop": 3}
    assert history.summarize(TimeSpan(since_s=T + 10, until_s=T + 20)) == {"tiers": [], "incidents": {}}


def test_incidents_that_match_are_counted(journal, history):
    """Each in the piece of time that it fell into; by kind, tier, session and key, alone and together; no word of a
    filter is read as SQL."""
    pieces = history.count_incidents(TimeSpan(since_s=T, until_s=T + 6, piece_s=2.0))
    assert pieces == [(piece, kind, 1) for piece in range(3) for kind in ("fault", "loop")]

    with journal.step():
        for tier in ("fast", "premium"):
            journal.write_incident({"at": T, "kind": "loop", "tier": tier, "session": "its", "key": "k"})

    def count(**which: str) -> int:
        return sum(many for _, _, many in history.count_incidents(TimeSpan(since_s=T, until_s=T + 9, **which)))

    assert (count(kind="loop"), count(session="its"), count(tier="fast"), count(key="k")) == (5, 2, 1, 2)
    assert count(kind="loop", tier="premium", session="its", key="k") == 1
    assert count(kind="fault", session="its") == count(tier="fast' OR 1=1 --") == 0


def test_it_sees_what_was_committed_and_can_write_nothing(journal, history):
    """It reads beside the writer, and only reads."""
    with journal.step():
        journal.write_incident({"at": T, "kind": "usage"})

    assert len(history.ask(Query(kind="usage"))) == 1
    with pytest.raises(sqlite3.OperationalError):
        history._db.execute("DELETE FROM incidents")


WORDS = st.sampled_from([None, "timeout", "loop", "server_error"])


@given(st.lists(st.tuples(WORDS, WORDS), max_size=6), st.booleans(), st.integers(0, 3))
def test_every_fault_and_flaw_is_a_mark(met, mended, retries):
    """Whatever a request met can be looked for by its own name, and nothing that it didn't."""
    attempts = [attempt(fault=fault, flaw=flaw) for fault, flaw in met]
    made = report(attempts=attempts, repairs=["name"] if mended else [], retries=retries)
    marks = set(_list_marks(made))

    assert marks >= {word for pair in met for word in pair if word}
    assert ("mended" in marks) is mended
    assert ("retried" in marks) is bool(retries)
    assert "escalated" not in marks


def test_tokens_are_those_of_all_calls():
    """Of each attempt and of the judge's, cached ones apart."""
    judge = {"attempts": [attempt("standard")]}
    *_, prompt, completion, cached, cost = build_facts("k", report(attempts=[attempt(), attempt()], judge=judge), 1.0)

    assert (prompt, completion, cached, cost) == (300, 60, 180, None)
