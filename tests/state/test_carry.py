"""Changing the number of shards: no session's spent token is lost, whatever the order, and none is counted twice."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from deployments.state.actor import SessionState
from deployments.state.carry import era_of, part_of
from deployments.state.journal import Superseded
from deployments.state.records import Charged
from tests.state.lives import ROOM, Driver, HandClock, ask, life, settled, tight

SESSIONS = [f"s{n}" for n in range(12)]
FREE = tight(10**9)


def layouts(parts: int) -> list[str]:
    """The parts of a layout, the hub first."""
    return ["whole"] if parts == 1 else ["hub", *(f"{part}-of-{parts}" for part in range(parts))]


class Server:
    """All actors of one layout after the other, on one folder."""

    def __init__(self, folder: Path, clock: HandClock) -> None:
        self.folder, self.clock = folder, clock
        self.parts = 0
        self.actors: dict[str, SessionState] = {}

    def start(self, parts: int, order: list[str]) -> None:
        """A new layout, its actors born in some order; those of the old one are dead."""
        for actor in self.actors.values():
            actor._journal.close()
        self.parts, self.actors = parts, {name: life(self.folder, name, self.clock) for name in order}

    def driver(self, session: str) -> Driver:
        """The way to a session's own part."""
        name = "whole" if self.parts == 1 else f"{part_of('k', session, self.parts)}-of-{self.parts}"
        return self._driver(name)

    def _driver(self, name: str) -> Driver:
        return Driver(self.actors[name], f"c{self.clock.now_ns()}{name}", FREE)

    def spend(self, session: str, tokens: int) -> None:
        """One request: both its part and the hub hear of it."""
        self.clock.wait(0.001)
        for driver in [self.driver(session), *([self._driver("hub")] if self.parts > 1 else [])]:
            (grant,) = driver.granted(ask(session=session))
            driver.put(settled(grant, tokens))

    def reset(self, session: str) -> None:
        for actor in {self.driver(session).actor, *(a for name, a in self.actors.items() if name == "hub")}:
            actor.reset("k", session)

    def books(self) -> dict[str, int]:
        """What each session has spent, by its own part."""
        return {s: self.driver(s).actor.budget("k", s)["spent_tokens"] for s in SESSIONS}


@settings(max_examples=15)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_no_spent_token_is_lost(parts: list[int], data: DataObject) -> None:
    """Through any layouts, born in any order, with deaths and resets: each session has spent what it has spent."""
    with TemporaryDirectory(dir=ROOM) as room:
        server, spent = Server(Path(room), HandClock()), dict.fromkeys(SESSIONS, 0)
        for count in parts:
            server.start(count, data.draw(st.permutations(layouts(count))))
            assert server.books() == spent
            for session in data.draw(st.lists(st.sampled_from(SESSIONS), max_size=6)):
                server.spend(session, 7)
                spent[session] += 7
            if data.draw(st.booleans()):
                session = data.draw(st.sampled_from(SESSIONS))
                server.reset(session)
                spent[session] = 0
            if data.draw(st.booleans()):
                server.start(count, data.draw(st.permutations(layouts(count))))
        assert server.books() == spent
        for actor in server.actors.values():
            actor._journal.close()


@pytest.mark.parametrize("way", [(1, 3, 2, 1), (1, 3, 1, 3), (3, 1), (2, 3, 2)])
def test_ways(tmp_path, way):
    """The ways that people go: there, on, and back."""
    server, spent = Server(tmp_path, HandClock()), dict.fromkeys(SESSIONS, 0)
    for parts in way:
        server.start(parts, layouts(parts))
        assert server.books() == spent
        for n, session in enumerate(SESSIONS):
            server.spend(session, n)
            spent[session] += n
    server.start(way[-1], layouts(way[-1]))
    assert server.books() == spent


def test_what_was_carried_survives_a_death(tmp_path):
    """Sessions that were taken over are in the new part's own journal at once, before it has done any step."""
    server = Server(tmp_path, HandClock())
    server.start(1, ["whole"])
    server.spend("s1", 50)
    server.start(2, layouts(2))
    (tmp_path / "ledger.sqlite").unlink()
    server.start(2, layouts(2))

    assert server.books()["s1"] == 50


def test_open_reservations_count_as_spent(tmp_path):
    """What an old part has granted and never settled is spent in the new one, once: hub and shard held it both."""
    server = Server(tmp_path, HandClock())
    server.start(2, layouts(2))
    for name in ("hub", server.driver("s1").actor._layout):
        server._driver(name).granted(ask(session="s1"))
    server.start(1, ["whole"])
    books = server.actors["whole"].budget("k", "s1")
    assert (books["spent_tokens"], books["reserved_tokens"], books["open_calls"]) == (0, 100, 1)
    server.start(3, layouts(3))
    assert server.books()["s1"] == 100


def test_a_part_of_the_old_layout_spends_no_more(tmp_path):
    """An actor of the old layout that still lives is superseded as soon as the new one has read its books."""
    old = Driver(life(tmp_path), limits=FREE)
    old.put(Charged(key="k", session="s1", tokens=5))
    part = part_of("k", "s1", 2)
    new = life(tmp_path, f"{part}-of-2")

    assert new.budget("k", "s1")["spent_tokens"] == 5
    with pytest.raises(Superseded):
        old.put(Charged(key="k", session="s1", tokens=5))


def test_the_hub_goes_on_while_shards_change(tmp_path):
    """A hub that lives through a change from three shards to two stays the owner of its journal."""
    clock = HandClock()
    server = Server(tmp_path, clock)
    server.start(3, layouts(3))
    server.spend("s1", 9)
    hub = server.actors.pop("hub")
    server.start(2, layouts(2)[1:])
    server.actors["hub"] = hub
    server.spend("s1", 9)

    assert server.books()["s1"] == 18
    assert hub.budget("k", "s1")["spent_tokens"] == 18


def test_a_session_that_the_hub_has_forgotten(tmp_path):
    """The hub may have let a session go and met it again: its own part's books are the right ones."""
    server = Server(tmp_path, HandClock())
    server.start(2, layouts(2))
    server.spend("s1", 500)
    server.actors["hub"].reset("k", "s1")  # as if it had been forgotten there
    server.spend("s1", 1)
    server.clock.wait(60)
    hub = server._driver("hub")
    hub.put(settled(hub.granted(ask(session="s1"))[0], 0))  # a call that the session's part has barred
    server.start(1, ["whole"])

    assert server.books()["s1"] == 501


def test_an_unreadable_neighbour_is_left_out(tmp_path, caplog):
    """One journal that can't be read costs its own sessions, not the start; and the log says so."""
    server = Server(tmp_path, HandClock())
    server.start(1, ["whole"])
    server.spend("s1", 50)
    (tmp_path / "sessions-0-of-9.sqlite").write_bytes(b"rubbish" * 1000)
    server.start(2, layouts(2))

    assert server.books()["s1"] == 50
    assert "sessions-0-of-9" in caplog.text


def test_eras(tmp_path):
    """An era begins with another number of parts, whoever comes first, and the same number stays in it."""
    assert [era_of(tmp_path, name) for name in ("whole", "whole", "hub", "1-of-3", "hub", "0-of-3")] == [
        1,
        1,
        2,
        2,
        2,
        2,
    ]
    assert [era_of(tmp_path, name) for name in ("1-of-2", "hub", "whole", "hub", "0-of-2")] == [3, 3, 4, 5, 5]


def test_the_same_layout_again_reads_no_other_journal(tmp_path):
    """A restart under the same layout depends on its own journal only."""
    server = Server(tmp_path, HandClock())
    server.start(2, layouts(2))
    server.spend("s1", 3)
    own = f"sessions-{server.driver('s1').actor._layout}.sqlite"
    for path in tmp_path.glob("*.sqlite"):
        if path.name != own:
            path.write_bytes(b"rubbish")
    again = life(tmp_path, own.removeprefix("sessions-").removesuffix(".sqlite"))

    assert again.budget("k", "s1")["spent_tokens"] == 3
