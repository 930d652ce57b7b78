"""The narrow rows beside the reports: what they say, and that they come and go with their reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.state.history import build_facts, list_marks
from deployments.state.journal import JournalBounds
from deployments.state.recovery import open_journal
from tests.support.room_rig import attempt, report

WORDS = st.sampled_from([None, "timeout", "loop", "server_error"])


@given(st.lists(st.tuples(WORDS, WORDS), max_size=6), st.booleans(), st.integers(0, 3))
def test_every_fault_and_flaw_is_a_mark(met, mended, retries):
    """Whatever a request met can be looked for by its own name, and nothing that it didn't."""
    attempts = [attempt(fault=fault, flaw=flaw) for fault, flaw in met]
    made = report(attempts=attempts, repairs=["name"] if mended else [], retries=retries)
    marks = set(list_marks(made))

    assert marks >= {word for pair in met for word in pair if word}
    assert ("mended" in marks) is mended
    assert ("retried" in marks) is bool(retries)
    assert "escalated" not in marks


def test_tokens_are_those_of_all_calls():
    """Of each attempt and of the judge's, cached ones apart."""
    judge = {"attempts": [attempt("standard")]}
    *_, prompt, completion, cached, cost = build_facts("k", report(attempts=[attempt(), attempt()], judge=judge), 1.0)

    assert (prompt, completion, cached, cost) == (300, 60, 180, None)


@pytest.mark.parametrize("broken", [{}, {"session": "s"}, {"session": "s", "attempts": None}])
def test_what_is_no_report_has_none(broken):
    """It raises before anything is written, as the journal expects."""
    with pytest.raises((KeyError, TypeError)):
        build_facts("k", broken, 1.0)


def test_facts_go_with_their_reports(tmp_path):
    """After a trim there is a row for each report, and none besides; one that was replaced leaves none to be found."""
    journal, _ = open_journal(tmp_path / "ledger.sqlite", "me", JournalBounds(reports_max=5))
    with journal.step():
        for n in range(12):
            journal.write_report("k", report(f"r{n}"), 1.8e9 + n)
        journal.write_report("k", report("r9"), 1.8e9 + 20)
    journal.trim(1.8e9 + 21)
    reports = journal._db.execute("SELECT id FROM reports").fetchall()
    facts = journal._db.execute("SELECT id FROM report_facts").fetchall()

    assert len(reports) <= 5
    assert set(reports) <= set(facts)
    assert min(facts) >= min(reports)
