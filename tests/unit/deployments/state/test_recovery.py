"""A folder of version 0.1.0 as a kill -9 has left it.

`fixtures/folders.tar.xz` was written by that version's own code, on a wall clock that stood at 2100-01-01, so that
nothing in it expires before its test. It has seen the calls of three sessions, of which one is still open, a breaker
that opened, a tier that was isolated.
"""

from deployments.state.records import Query
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
