"""Folders of version 0.1.0 as a kill -9 has left them, when sessions could still be spread over several actors.

`fixtures/folders.tar.xz` was written by that version's own code, on a wall clock that stood at 2100-01-01, so that
nothing in it expires before its test: `one_actor` by the default configuration, `three_actors` by `state.shards: 2`.
Each has seen the calls of three sessions, of which one is still open, a breaker that opened, a tier that was isolated.
"""

import pytest

from deployments.config.app_config import StateConfig
from deployments.config.config_errors import ConfigError
from deployments.state.client import ray_finder
from deployments.state.journal import JournalBounds
from deployments.state.records import Query
from deployments.state.recovery import JOURNAL, open_journal, refuse_parts
from reliability.admission.breaker import Phase
from tests.support.incarnations import Driver, HandClock, ask, life, settled, unpack


def test_the_books_of_one_actor_go_on(tmp_path):
    """What each session and the hour have spent and reserved, breakers, reports and incidents are as they were left."""
    actor = life(unpack("one_actor", tmp_path), HandClock())
    books = {session: actor.budget("k", session) for session in ("s1", "s2", "s3")}
    health = actor._health()

    assert [each["spent_tokens"] for each in books.values()] == [75, 70, 0]
    assert [each["open_calls"] for each in books.values()] == [0, 1, 0]
    assert books["s2"]["reserved_tokens"] == 70
    assert books["s1"]["windows"]["hour"]["tokens"] == 215
    assert (health["cloud"].phase, health["standard"].isolated) == (Phase.OPEN, True)
    assert actor.report("k", "r1")["session"] == "s1"
    assert {each["kind"] for each in actor.browse(Query())} == {"flaw", "breaker", "operator"}


def test_a_router_of_then_goes_on_where_it_was(tmp_path):
    """Its steps are known by their numbers, and its open call can be settled, once."""
    actor = life(unpack("one_actor", tmp_path), HandClock())
    router = Driver(actor, client="router")
    ((grant, _),) = actor._state.budget.open.items()
    late = settled(grant, 90)
    router.number = 3
    router.put(late)  # under the number of a step that was done
    before = actor.budget("k", "s2")["spent_tokens"]
    router.put(late)
    router.put(late)

    assert (before, actor.budget("k", "s2")["spent_tokens"]) == (70, 130)
    assert router.granted(ask(session="s1"))
    assert [path.name for path in actor._journal.path.parent.glob("*.unreadable*")] == []


def test_the_books_of_several_actors_are_refused(tmp_path):
    """They would miss some: the refusal is one line that names what to do, and nothing is changed or put aside."""
    folder = unpack("three_actors", tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}
    with pytest.raises(ConfigError) as caught:
        open_journal(folder / JOURNAL, "me", JournalBounds())

    line = str(caught.value)
    assert line.startswith(f"state.path: an older version kept the ledger in {folder} in several journals")
    assert line.endswith(
        "start that version once with state.shards: 1, which brings them together, or name another folder"
    )
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


def test_a_router_refuses_them_before_it_starts(tmp_path):
    """Where no preflight has run, the Router's start ends in the same line."""
    with pytest.raises(ConfigError, match="an older version kept the ledger"):
        ray_finder("app", StateConfig(path=str(unpack("three_actors", tmp_path))))


@pytest.mark.parametrize("content", [None, b"", b"rubbish" * 1000])
def test_what_holds_no_books_is_not_refused(tmp_path, content):
    """No journal, an empty one and one that can't be read are left to whoever opens it."""
    if content is not None:
        (tmp_path / JOURNAL).write_bytes(content)
    refuse_parts(tmp_path / JOURNAL)
    assert life(tmp_path).stats()["sessions"] == 0


def test_several_actors_that_became_one_are_not_refused(tmp_path):
    """The way out that the refusal names: a journal of one actor beside what is left of the others."""
    folder = unpack("one_actor", tmp_path)
    for path in unpack("three_actors", tmp_path).glob("sessions-*"):
        path.rename(folder / path.name)
    assert life(folder, HandClock()).budget("k", "s1")["spent_tokens"] == 75
