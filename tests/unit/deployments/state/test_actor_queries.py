"""What the state actor tells of reports, sessions and incidents, and to whom."""

from __future__ import annotations

from dataclasses import replace

from deployments.state.records import Query
from tests.support.incarnations import Driver, done, life


def test_reports_and_sessions_are_found_by_their_key(tmp_path):
    """A report and a session's totals are shown under their own key, or to whoever may see all keys."""
    driver = Driver(life(tmp_path))
    driver.put(done("r", key="a", tokens=5), done("r", key="b", tokens=7), done("q", key="a", tokens=1))

    assert driver.actor.report("a", "r")["attempts"][0]["usage"]["prompt_tokens"] == 5
    assert driver.actor.report("c", "r") is None
    assert driver.actor.report(None, "r")["attempts"][0]["usage"]["prompt_tokens"] == 7
    totals = driver.actor.session("a", "s")
    assert (totals["requests"], totals["prompt_tokens"], totals["completion_tokens"]) == (2, 6, 2)
    assert totals["last_request_id"] == "q"
    assert driver.actor.session("c", "s") is None


def test_incidents_are_filtered_and_paged(tmp_path):
    """Every field of a query must match; pages go on from an id, the newest first."""
    driver = Driver(life(tmp_path))
    for n in range(10):
        one = done(f"r{n}", session=f"s{n % 2}", incidents=1)
        at = ({**one.incidents[0], "at": 100.0 + n, "tier": f"t{n % 5}"},)
        driver.put(replace(one, incidents=at))

    def found(**more):
        return [one["request_id"] for one in driver.actor.incidents(Query(**more))]

    assert found(session="s1") == ["r9", "r7", "r5", "r3", "r1"]
    assert found(session="s1", tier="t2") == ["r7"]
    assert found(since_s=103.0, until_s=105.0) == ["r4", "r3"]
    assert found(kind="other") == found(key="x") == []
    page = driver.actor.incidents(Query(limit=3))
    assert [one["request_id"] for one in page] == ["r9", "r8", "r7"]
    assert found(limit=3, before=page[-1]["id"]) == ["r6", "r5", "r4"]
