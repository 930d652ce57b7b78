"""Replicas that come and go, as incidents."""

from __future__ import annotations

from typing import Any

from deployments.reports.memory_notes import GONE_S, ReplicaNotes


def hold(replica: str, since_s: float = 3.0, *, held: bool = True) -> dict[str, Any]:
    """A line of `MemoryView.list_holders`."""
    return {
        "node": "host 12345678",
        "tier": "standard",
        "replica": replica,
        "held": held,
        "bytes": 1000,
        "since_s": since_s,
        "why": None,
    }


def look(notes: ReplicaNotes, now_s: float, *holders: dict[str, Any]) -> list[tuple[str, float]]:
    """What has changed: the id of each record, and its moment."""
    return [(one["request_id"], one["at"]) for one in notes.look(holders, now_s)]


def test_a_replica_begins_once_and_ends_once():
    """Law: whoever holds memory has one record of its beginning, at the moment of its lease, and one of its end, at the
    moment when it was last seen."""
    notes = ReplicaNotes()

    assert look(notes, 100.0, hold("a")) == [("replica-a-started", 97.0)]
    assert look(notes, 101.0, hold("a", 4.0)) == []
    assert look(notes, 101.0 + GONE_S) == []
    assert look(notes, 101.5 + GONE_S) == [("replica-a-ended", 101.0)]
    assert look(notes, 200.0) == []


def test_a_monitor_that_begins_anew_ends_nobody():
    """Law: holders that are missing for less than it takes to renew a lease are still there."""
    notes = ReplicaNotes()
    look(notes, 100.0, hold("a"), hold("b"))

    assert look(notes, 101.0) == []
    assert look(notes, 102.0 + GONE_S / 2, hold("b", 9.0), hold("a", 9.0)) == []


def test_two_routers_write_the_same_records():
    """Law: the ids are those of the replica, so that the journal keeps what two Routers have seen once."""
    one, other = ReplicaNotes(), ReplicaNotes()

    assert look(one, 100.0, hold("a")) == look(other, 140.0, hold("a", 43.0))


def test_who_waits_has_not_begun():
    """Law: a replica that waits for its memory isn't there yet."""
    assert look(ReplicaNotes(), 100.0, hold("a", held=False)) == []


def test_a_record_says_where_how_much_and_of_which_tier():
    """Law: the record has what the page of the memory shows."""
    (record,) = ReplicaNotes().look([hold("a")], 100.0)

    assert (record["kind"], record["tier"], record["reason"]) == ("scaling", "standard", "started")
    assert record["evidence"] == {"node": "host 12345678", "replica": "a", "bytes": 1000}
