"""The journal: what was answered is written, what is written comes back, and half of a step never."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from deployments.state.journal import Superseded, _read_journal
from deployments.state.records import Query
from reliability.admission import events as replay
from reliability.admission.breaker import Phase
from reliability.admission.events import Charge, Order
from reliability.types import Verdict
from tests.support import incarnations
from tests.support.incarnations import CONFIG, LIMITS, Driver, HandClock, S, ask, done, life, limits, settled, state_of
from tests.support.repository import ROOT

OTHER = limits(replace(CONFIG, budget=replace(CONFIG.budget, reservation_ns=7 * S)), name="other limits")


class JournalMachine(RuleBasedStateMachine):
    """Any steps, waits, operators, limits, snapshots and deaths, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.room = tempfile.TemporaryDirectory(dir=incarnations.ROOM)
        self.deaths = 0
        self.folder = Path(self.room.name) / "0"
        self.clock = HandClock()
        self.driver = Driver(life(self.folder, clock=self.clock))
        self.open: list[str] = []

    def teardown(self) -> None:
        self.driver.actor._journal.close()
        self.room.cleanup()

    @rule(
        sessions=st.lists(st.sampled_from("abcdefgh"), max_size=4),
        tier=st.sampled_from(["fast", "cloud"]),
        prompt=st.sampled_from([0, 50, 900, 9000]),
        back=st.integers(0, 3),
        verdict=st.sampled_from(list(Verdict)),
        used=st.sampled_from([None, 0, 10, 4000]),
        charged=st.sampled_from([None, 0, 700]),
    )
    def work(self, sessions, tier, prompt, back, verdict, used, charged) -> None:
        items: list[Any] = [settled(name, used, verdict) for name in self.open[:back]]
        self.open = self.open[back:]
        if charged is not None:
            items += [Charge(key="k", session="x", tokens=charged), done(incidents=1)]
        asks = tuple(ask(tier, session, prompt_tokens=prompt) for session in sessions)
        self.open += [each.decision.id for each in self.driver.step(tuple(items), asks) if hasattr(each.decision, "id")]

    @rule(sessions=st.lists(st.sampled_from("abc"), max_size=3), attempt=st.integers(1, 3))
    def resend(self, sessions: list[str], attempt: int) -> None:
        """The grants of the attempt before are gone; the new ones are known to nobody and expire."""
        self.driver.step(requests=tuple(ask(session=session) for session in sessions), attempt=attempt)

    @rule(seconds=st.sampled_from([0.001, 1.0, 9.0, 31.0, 301.0, 4000.0]))
    def wait(self, seconds: float) -> None:
        self.clock.wait(seconds)

    @rule(which=st.sampled_from(["isolate", "restore", "close", "reset"]))
    def operate(self, which: str) -> None:
        if which == "reset":
            self.driver.actor.reset("k", "a")
        else:
            self.driver.actor.order(Order("fast", which))

    @rule(other=st.booleans())
    def configure(self, other: bool) -> None:
        self.driver.limits = OTHER if other else LIMITS

    @rule()
    def snapshot(self) -> None:
        """A snapshot at any moment changes nothing."""
        before = state_of(self.driver.actor)
        self.driver.actor._write_snapshot(self.driver.actor._digest, self.driver.actor._config)
        assert state_of(self.driver.actor) == before

    @rule(copied=st.booleans())
    def die(self, copied: bool) -> None:
        """The next life has the very state that was lost, whether the files were closed or torn away.

        Only what has expired meanwhile is closed, which is the first thing that it does.
        """
        before, journal = state_of(self.driver.actor), self.driver.actor._journal
        if copied:
            self.deaths += 1
            self.folder = incarnations.killed(self.folder, Path(self.room.name) / str(self.deaths))
        journal.close()
        self.driver.actor = life(self.folder, clock=self.clock)
        actor = self.driver.actor
        assert state_of(actor) == replay.reduce(before, actor._config, replay.Tick("expire"), actor._now_ns())[0]

    @invariant()
    def the_file_is_the_state(self) -> None:
        """At each moment the file, read by somebody else, gives the state in memory; its grants have their names."""
        actor = self.driver.actor
        db = sqlite3.connect(f"file:{actor._journal.path}?mode=ro", uri=True)
        try:
            assert _read_journal(db).state == actor._state
        finally:
            db.close()


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(max_examples=30, stateful_step_count=25)


class Boom(Exception):
    """Something raises in the middle."""


def test_a_step_that_raises_leaves_nothing(tmp_path):
    """Whatever raises inside of a step, neither the file nor the memory has any of it, and the next step works."""
    driver = Driver(life(tmp_path))
    (grant,) = driver.granted(ask())
    actor, before = driver.actor, state_of(driver.actor)

    def boom(batch):
        batch.apply_items([settled(grant), done("gone", incidents=2)])
        batch.admit([ask(session="t")])
        raise Boom

    with pytest.raises(Boom):
        actor._transit(boom)

    assert state_of(actor) == before
    assert actor.report("k", "gone") is None
    assert actor.browse(Query()) == []
    driver.put(settled(grant))
    assert actor.budget("k", "s")["spent_tokens"] == 10


def test_a_full_disk_leaves_nothing(tmp_path):
    """Where the disk is full the step fails as a whole; when there is room again, the same step succeeds."""
    driver = Driver(life(tmp_path))
    driver.put(done("first"))
    actor, before = driver.actor, state_of(driver.actor)
    db = actor._journal._db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count={pages}")
    many = tuple(done(f"r{n}", session="long " * 200) for n in range(100))
    with pytest.raises(sqlite3.OperationalError, match="full"):
        driver.step((Charge(key="k", session="s", tokens=7), *many))

    assert state_of(actor) == before
    assert actor.report("k", "r1") is None

    db.execute("PRAGMA max_page_count=1000000")
    driver.step((Charge(key="k", session="s", tokens=7), *many), attempt=1)
    assert actor.budget("k", "s")["spent_tokens"] == 7
    assert actor.report("k", "r99") is not None


def test_the_former_owner_changes_nothing(tmp_path):
    """Who has lost the journal gets `Superseded` for everything it tries, and file and memory stay as they were."""
    old = Driver(life(tmp_path))
    (grant,) = old.granted(ask())
    new = Driver(life(tmp_path), client="d")
    before = state_of(new.actor), state_of(old.actor)
    for attempt in (
        lambda: old.put(settled(grant)),
        lambda: old.ask(ask()),
        lambda: old.actor.order(Order("fast", "isolate")),
        lambda: old.actor.reset("k", "s"),
        lambda: old.actor.configure(OTHER),
        lambda: old.actor._journal.trim(1e12),
    ):
        with pytest.raises(Superseded):
            attempt()

    assert (state_of(new.actor), state_of(old.actor)) == before
    new.put(settled(grant))
    assert new.actor.budget("k", "s")["spent_tokens"] == 10


# -- files -----------------------------------------------------------------------------------------------------


def unreadable(path: Path, how: str) -> None:
    """Spoil a journal in one of the ways that happen."""
    if how == "garbage":
        path.write_bytes(b"not a database at all " * 1000)
        return
    life(path.parent).configure(LIMITS)
    db = sqlite3.connect(path)
    spoil = {
        "schema": "UPDATE meta SET value = '999' WHERE name = 'schema'",
        "snapshot": """UPDATE snapshot SET state = '{"version": 999}'""",
        "json": "UPDATE snapshot SET config = '{'",
        "limits": """UPDATE snapshot SET config = '{"budget": {"output_tokens_default": "x"}}'""",
        "event": """UPDATE events SET event = '{"kind": "?"}'; INSERT INTO events VALUES (99, 1, '{"kind": "?"}')""",
    }
    db.executescript(spoil[how])
    db.close()


@pytest.mark.parametrize("how", ["garbage", "schema", "snapshot", "json", "limits", "event"])
def test_an_unreadable_file_is_put_aside(tmp_path, how):
    """What can't be read is renamed, byte for byte, and the books begin empty; the new journal is a sound one."""
    path = tmp_path / "ledger.sqlite"
    unreadable(path, how)
    content = path.read_bytes()
    driver = Driver(life(tmp_path))
    (grant,) = driver.granted(ask())

    assert (tmp_path / "ledger.sqlite.unreadable-1").read_bytes() == content
    driver.actor = life(tmp_path)
    driver.put(settled(grant))
    assert driver.actor.budget("k", "s")["spent_tokens"] == 10


def test_nothing_that_was_put_aside_is_overwritten(tmp_path):
    """However often a file has to be put aside, all of them are kept."""
    for n in range(3):
        (tmp_path / "ledger.sqlite").write_bytes(b"%d" % n * 5000)
        life(tmp_path)._journal.close()

    assert [(tmp_path / f"ledger.sqlite.unreadable-{n + 1}").read_bytes()[:1] for n in range(3)] == [b"0", b"1", b"2"]


def test_a_locked_file_is_not_put_aside(tmp_path, monkeypatch):
    """A file that somebody else locks may be whole: that is an error, and the file stays."""
    monkeypatch.setattr("deployments.state.journal._BUSY_S", 0.01)
    Driver(life(tmp_path)).granted(ask())
    with sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            life(tmp_path)
        db.execute("ROLLBACK")

    assert life(tmp_path).stats()["grants"] == 1


def test_records_that_can_not_be_written_are_left_out(tmp_path, caplog):
    """A report or incident that is no JSON, or a count beyond all bounds, stops neither the step nor the next."""
    driver = Driver(life(tmp_path))
    (grant,) = driver.granted(ask(session="big"))
    bad = [replace(done(), report=report) for report in ({}, {"a": {1, 2}}, {"x": 2**80}, {"request_id": "\ud800"})]
    bad += [replace(done(), incidents=(one,)) for one in ({}, {"at": 1, "kind": 2**70}, {"at": 1, "kind": {}})]
    driver.put(settled(grant, 10**40), *bad, Charge(key="k", session="s", tokens=10**30), done("good", incidents=1))

    assert driver.actor.report("k", "good") is not None
    assert len(driver.actor.browse(Query())) == 1
    assert "left out" in caplog.text
    driver.actor = life(tmp_path)
    assert driver.actor.budget("k", "s")["spent_tokens"] == driver.actor.budget("k", "big")["spent_tokens"] == 10**12


WRITER = """
import sys
from pathlib import Path
from tests.support.incarnations import Driver, ask, done, life, settled, tight
driver = Driver(life(Path(sys.argv[1])), limits=tight(10**9))
while True:
    one, two = driver.granted(ask(), ask(session="t"))
    driver.put(settled(one, 7), done(incidents=1))
    print(one.id, two.id, flush=True)
"""


def test_kill_9_in_the_middle_of_writing(tmp_path):
    """Every grant that was answered before a kill -9 is in the journal, settled ones at what they used."""
    command, environment = [sys.executable, "-c", WRITER, str(tmp_path)], os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as writer:
        lines = [writer.stdout.readline() for _ in range(150)]
        os.kill(writer.pid, signal.SIGKILL)
        lines += writer.stdout.read().split("\n")
    whole = [line.split() for line in lines if len(line.split()) == 2][:-1]  # the last may be torn
    actor = life(tmp_path)
    held = {name for name, _ in actor._state.grants.items()}

    assert len(whole) >= 149
    assert {two for _, two in whole} <= held
    assert not {one for one, _ in whole} & held
    assert actor.budget("k", "s")["spent_tokens"] in range(7 * len(whole), 7 * len(whole) + 22)


# -- a folder of version 0.1.0, as a kill -9 has left it -------------------------------------------------------
# That version's own code has written it, on a wall clock that stood at 2100-01-01, so that nothing in it expires before
# its test. It has seen the calls of three sessions, of which one is still open, a breaker that opened, a tier that was
# isolated.


def test_the_books_of_one_actor_go_on(tmp_path):
    """What each session and the hour have spent and reserved, breakers, reports and incidents are as they were left."""
    actor = life(incarnations.unpack("one_actor", tmp_path), HandClock())
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
    actor = life(incarnations.unpack("one_actor", tmp_path), HandClock())
    router = Driver(actor, client="router")
    ((grant, _),) = actor._state.budget.open.items()
    late = settled(grant, 90)
    router.number = 3
    spent = []
    for _ in range(3):  # the first under the number of a step that was done
        router.put(late)
        spent.append(actor.budget("k", "s2")["spent_tokens"])

    assert spent == [70, 130, 130]
    assert router.granted(ask(session="s1"))
    assert [path.name for path in actor._journal.path.parent.glob("*.unreadable*")] == []
