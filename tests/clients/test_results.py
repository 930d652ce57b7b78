"""The table says what was found: what is as it must be, what is not, and why a client is excused."""

from typing import Any

import pytest

from tests.clients.catalog import CLIENTS
from tests.clients.checks import Finding
from tests.clients.players import FAULTS
from tests.clients.record import Record
from tests.clients.results import build_real_table, build_table, is_met
from tests.clients.runs import read_findings, write_record

PLAIN, TWICE = (next(one for one in CLIENTS if one.name == name) for name in ("LangGraph", "CrewAI"))


def job(**more: Any) -> Finding:
    return Finding(**{"client": PLAIN.name, "scenario": "job", "done": True, "played": list(FAULTS), **more})


def end(**more: Any) -> Finding:
    """Build the finding of a run that ended in the error that it should."""
    good = {"client": PLAIN.name, "scenario": "loop", "final": "422 loop", "shown": True, "ended": True}
    return Finding(**good | more)


@pytest.mark.parametrize(
    ("finding", "met"),
    [
        (job(), True),
        (job(done=False), False),
        (job(wrong=["request 1: arguments are no object"]), False),
        (end(), True),
        (end(after=3), True),
        (end(after=4), False),
        (end(after=4, scenario="dead"), True),
        (end(shown=False, scenario="dead"), False),
        (end(shown=False, scenario="dead", ended=False), True),
        (end(shown=False), False),
        (end(final=""), False),
    ],
)
def test_what_is_as_it_must_be(finding, met):
    """The job done with nothing bad delivered; an error that came, was shown, and wasn't asked for again and again."""
    assert is_met(finding) is met


@pytest.mark.parametrize(
    ("finding", "met"),
    [(end(final="", shown=False), True), (end(ended=False), False), (end(wrong=["request 1: no end"]), False)],
)
def test_with_real_models_a_clear_end_is_enough(finding, met):
    """A run that had to be stopped is none, and a bad call is never excused."""
    assert is_met(finding, real=True) is met
    assert ("had to be stopped" in build_real_table([finding])) is not finding.ended


def test_a_row():
    """Version, API, what to set, and a cell for each run."""
    row = build_table([PLAIN], [job(usage_checked=7), end()]).splitlines()[-1]

    assert row.startswith("| LangGraph | 1.2.22 | chat | `OPENAI_BASE_URL=URL/v1`")
    assert "| done | 5 of 5 | 422 loop, shown, 0 after | not run | not run | 7 right |" in row


def test_what_is_wrong_stands_out_unless_it_is_excused():
    """Bold, or with the client's own reason beside it."""
    bad = build_table([PLAIN], [job(done=False, wrong=["request 2: usage (1, 2), reported (1, 3)"]), end(after=9)])
    excused = build_table([TWICE], [end(client=TWICE.name, after=9)])

    assert all(cell in bad for cell in ("**not done**", "**1 wrong**", "**422 loop, shown, 9 after**"))
    assert f"422 loop, shown, 9 after: {TWICE.excused['loop']}" in excused


def test_findings_outlive_their_run(tmp_path):
    """What a run showed is read again from its record, the last run of a client in a scenario alone."""
    for finding in (job(done=False), job(), end()):
        write_record(tmp_path, finding, Record())

    assert read_findings(tmp_path) == [job(), end()]
