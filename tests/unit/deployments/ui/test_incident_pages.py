"""Incidents: counted over time, filtered, and exported whole."""

from __future__ import annotations

import csv
import io
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.state.history import Span
from deployments.ui.incident_pages import EXPORT_PAGE, stack_counts
from tests.support.room_rig import Rig, browse

COUNTS = st.lists(st.tuples(st.integers(-2, 12), st.sampled_from(["loop", "flaw", "fault"]), st.integers(1, 9)))


@given(COUNTS)
def test_series_hold_every_count_once(counts):
    """In its piece; what is outside of the span isn't shown, and a kind that never occurs has no series."""
    made = stack_counts(counts, Span(since_s=0, until_s=100, piece_s=10))
    inside = [one for one in counts if 0 <= one[0] < 10]

    assert len(made["at"]) == 10
    assert {one["name"] for one in made["series"]} == {kind for _, kind, _ in inside}
    assert sum(sum(one["values"]) for one in made["series"]) == sum(count for *_, count in inside)


def incident(n: int, **changes: Any) -> dict[str, Any]:
    one = {"at": time.time() - n, "kind": "loop", "tier": "fast", "session": "s", "key": "", "request_id": f"r{n}"}
    return one | {"reason": "loop", "attempt": 0, "evidence": {}} | changes


@pytest.fixture
def rig(tmp_path) -> Rig:
    made = Rig(tmp_path)
    made.finish("r", tuple(incident(n, kind="loop" if n % 2 else "fault") for n in range(EXPORT_PAGE + 20)))
    made.finish("q", (incident(0, kind="flaw", session="=HYPERLINK(1)"),))
    return made


def test_all_that_match_are_exported(rig):
    """Over as many pages as it takes, in both forms alike, the newest first."""
    with browse(rig) as client:
        rows = list(csv.DictReader(io.StringIO(client.get("/ui/incidents.csv?kind=loop").text)))
        whole = client.get("/ui/incidents.json").json()
        nothing = client.get("/ui/incidents.json?kind=usage").json()

    assert len(rows) == (EXPORT_PAGE + 20) // 2
    assert {row["kind"] for row in rows} == {"loop"}
    assert [one["id"] for one in whole] == list(range(EXPORT_PAGE + 21, 0, -1))
    assert nothing == []


def test_a_spreadsheet_runs_nothing(rig):
    """A client's word that would be a formula is a text."""
    with browse(rig) as client:
        (row,) = csv.DictReader(io.StringIO(client.get("/ui/incidents.csv?kind=flaw").text))

    assert row["session"] == "'=HYPERLINK(1)"


@pytest.mark.parametrize(("kind", "linked"), [("fault", True), ("scaling", False), ("memory", False)])
def test_only_a_request_is_linked(rig, kind, linked):
    """What stands in the place of a request's id, where a machine or a replica is told of, leads nowhere."""
    rig.finish("p", (incident(0, kind=kind, request_id="named-so", session=None),))
    with browse(rig) as client:
        page = client.get(f"/ui/incidents?kind={kind}").text

    assert ("by-id/named-so" in page) is linked


@pytest.mark.parametrize("form", ["csv", "json"])
def test_an_export_that_cant_begin_is_said(rig, form):
    """As an error, and not as a file that is empty or cut."""
    with browse(rig) as client:
        client.get("/ui/incidents")
        rig.here.away = True
        answer = client.get(f"/ui/incidents.{form}")
        rig.here.away = False

    assert answer.status_code == 503
    assert "content-disposition" not in answer.headers


@pytest.mark.parametrize(
    "name", ["a;=HYPERLINK(1)", 'a";=1+1;"', 'a;"=1+1"', "a\t=1+1", "a; =1+1", ";@SUM(1)", "b,=1+1", '"=1+1', "a-b;c=d"]
)
def test_no_other_separator_makes_a_formula(rig, name):
    """Where commas stand in numbers a spreadsheet separates by semicolons, whatever is quoted."""
    rig.finish("p", (incident(0, kind="usage", session=name),))
    with browse(rig) as client:
        text = client.get("/ui/incidents.csv?kind=usage").text

    assert [row["session"].replace("'", "") for row in csv.DictReader(io.StringIO(text))] == [name]
    for separator in ",;\t":
        for row in csv.reader(io.StringIO(text), delimiter=separator):
            assert not any(cell.strip().startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row)


def test_the_chart_s_figures_are_those_of_the_list(rig):
    """The day's counts add up to what was written in it; an export of another form isn't there."""
    with browse(rig) as client:
        figures = client.get("/ui/incidents/counts?span=day").json()
        assert client.get("/ui/incidents.exe").status_code == 404

    assert sum(sum(one["values"]) for one in figures["series"]) == EXPORT_PAGE + 21
    assert [one["name"] for one in figures["series"]] == ["loop", "flaw", "fault"]
