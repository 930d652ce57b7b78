"""Responses in the journal: bounded, forgotten by time, each key's own, and there again after a kill."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.state import response_shelf
from deployments.state.records import KeptResponse
from deployments.state.response_shelf import ResponseShelf
from tests.support.incarnations import HandClock, killed, life
from tests.unit.deployments.state.test_key_rows import open_journal


def make(name: str, *, key: str = "k", previous: str | None = None, at_s: float = 1.0, size: int = 10) -> KeptResponse:
    return KeptResponse(key, name, "s", previous, at_s, size, name.encode().ljust(size, b"."))


def test_what_was_kept_survives_a_kill(tmp_path):
    """What the actor has confirmed is in the files, and the next incarnation finds it."""
    actor = life(tmp_path / "one")
    actor.keep_response(make("a"))
    after = life(killed(tmp_path / "one", tmp_path / "two"))

    assert after.recall_responses("k", "a") == [make("a")]


def test_each_key_has_its_own(tmp_path):
    """One name under two keys is two responses; a key without it finds nothing and deletes nothing. Kept twice, as by a
    Router that got no answer, is kept once."""
    actor = life(tmp_path)
    actor.keep_response(make("a"))
    actor.keep_response(make("a"))
    actor.keep_response(make("a", key="l"))

    assert actor.recall_responses("m", "a") == []
    assert not actor.forget_response("m", "a")
    assert actor.forget_response("l", "a")
    assert actor.recall_responses("k", "a") == [make("a")]
    assert actor.forget_response("k", "a")
    assert not actor.forget_response("k", "a")


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 60)), max_size=12), st.integers(0, 100))
def test_the_bytes_are_bounded(tmp_path_factory, written, bytes_max):
    """After each write no more than `bytes_max` is there, and what is there are the newest."""
    journal = open_journal(tmp_path_factory.mktemp("shelf"), responses_bytes_max=bytes_max)
    newest: dict[str, KeptResponse] = {}
    for at_s, (name, size) in enumerate(written):
        response = make(name, at_s=float(at_s), size=size)
        with journal.step():
            journal.shelf.write(response)
        newest.pop(name, None)
        if size <= bytes_max:
            newest[name] = response
        while sum(len(each.record) for each in newest.values()) > bytes_max:
            del newest[next(iter(newest))]
        assert {name for name in "abcdefgh" if journal.shelf.find("k", name)} == set(newest)
    journal.close()


def test_what_shall_not_be_kept_never_reaches_the_disk(tmp_path):
    """With a bound of zero no byte of a response is written, not even for a moment."""
    journal = open_journal(tmp_path, responses_bytes_max=0)
    with journal.step():
        journal.shelf.write(make("secret", size=5_000))
    journal.close()

    assert not any(b"secret" in path.read_bytes() for path in tmp_path.iterdir())


def test_what_is_old_is_trimmed(tmp_path):
    """By its own date, and not before its time."""
    journal = open_journal(tmp_path, responses_ttl_s=50)
    with journal.step():
        for at_s in (1.0, 2.0):
            journal.shelf.write(make(f"r{at_s}", at_s=at_s))
    journal.trim(51.5)

    assert journal.shelf.find("k", "r1.0") is None
    assert journal.shelf.find("k", "r2.0") is not None


def test_a_full_journal_lets_responses_go(tmp_path):
    """The bound of the whole file counts them: the oldest leave, the newest stay."""
    journal = open_journal(tmp_path, journal_bytes_max=400_000)
    with journal.step():
        for at_s in range(20):
            journal.shelf.write(make(f"r{at_s}", at_s=float(at_s), size=50_000))
    journal.trim(20.0)

    assert journal.used_bytes <= 400_000
    assert journal.shelf.find("k", "r0") is None
    assert journal.shelf.find("k", "r19") is not None


def test_a_walk_goes_back_a_bounded_way(tmp_path, monkeypatch):
    """One call brings so many rows and about so many bytes; the rest is asked for from where it ended. What was
    forgotten in the middle ends it there."""
    monkeypatch.setattr(response_shelf, "_WALK_ROWS", 3)
    actor = life(tmp_path, clock=HandClock())
    for i in range(5):
        actor.keep_response(make(f"r{i}", previous=f"r{i - 1}" if i else None))

    assert [each.id for each in actor.recall_responses("k", "r4")] == ["r4", "r3", "r2"]
    assert [each.id for each in actor.recall_responses("k", "r1")] == ["r1", "r0"]
    monkeypatch.setattr(response_shelf, "_WALK_BYTES", 5)
    assert [each.id for each in actor.recall_responses("k", "r4")] == ["r4"]
    monkeypatch.undo()
    actor.forget_response("k", "r2")
    assert [each.id for each in actor.recall_responses("k", "r4")] == ["r4", "r3"]


@pytest.mark.parametrize("act", ["write", "delete and write"])
def test_a_write_to_a_full_shelf_costs_the_same_however_many_rows_it_has(act):
    """Law: the state actor has one thread for all keys, so what a key has stored slows no other's step: SQLite's own
    instructions are counted, and their number doesn't follow the rows."""

    def count_steps(rows: int) -> int:
        db = sqlite3.connect(":memory:", isolation_level=None)
        db.executescript(response_shelf.SHELF_SCHEMA)
        shelf = ResponseShelf(db, bytes_max=10 * rows, ttl_s=1e9)
        for number in range(rows + 5):
            shelf.write(make(f"r{number}", key=f"k{number % 3}", at_s=number))
        steps = []
        db.set_progress_handler(lambda: steps.append(1), 10)
        for number in range(5):
            if act != "write":
                assert shelf.delete(f"k{(rows + number) % 3}", f"r{rows + number}")
            shelf.write(make(f"new{number}", at_s=rows + number))
        db.close()
        return len(steps)

    assert count_steps(4_000) < 2 * count_steps(100)
