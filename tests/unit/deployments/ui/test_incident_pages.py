"""Incidents: counted over time, filtered, and linked to their requests."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.state.history import TimeSpan
from deployments.ui.incident_pages import stack_counts
from tests.support.room_rig import Rig, browse

COUNTS = st.lists(st.tuples(st.integers(-2, 12), st.sampled_from(["loop", "flaw", "fault"]), st.integers(1, 9)))


@given(COUNTS)
def test_series_hold_every_count_once(counts):
    """In its piece; what is outside of the span isn't shown, and a kind that never occurs has no series."""
    made = stack_counts(counts, TimeSpan(since_s=0, until_s=100, piece_s=10))
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
    made.finish("r", tuple(incident(n, kind="loop" if n % 2 else "fault") for n in range(500 + 20)))
    made.finish("q", (incident(0, kind="flaw", session="=HYPERLINK(1)"),))
    return made


@pytest.mark.parametrize(("kind", "linked"), [("fault", True), ("scaling", False), ("memory", False)])
def test_only_a_request_is_linked(rig, kind, linked):
    """What stands in the place of a request's id, where a machine or a replica is told of, leads nowhere."""
    rig.finish("p", (incident(0, kind=kind, request_id="named-so", session=None),))
    with browse(rig) as client:
        page = client.get(f"/ui/incidents?kind={kind}").text

    assert ("by-id/named-so" in page) is linked


def test_the_chart_s_figures_are_those_of_the_list(rig):
    """The day's counts add up to what was written in it."""
    with browse(rig) as client:
        figures = client.get("/ui/incidents/counts?span=day").json()

    assert sum(sum(one["values"]) for one in figures["series"]) == 500 + 21
    assert [one["name"] for one in figures["series"]] == ["loop", "flaw", "fault"]
