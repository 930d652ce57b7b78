"""A journal with a damaged page: wherever it is, the next life works."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.state.records import Query
from tests.support.incarnations import ROOM, Driver, ask, done, life, settled

PAGE_BYTES = 4096


@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_a_damaged_page_stops_nothing(number, dice):
    """Wherever in the file it is: the next life puts the file aside if it minds, which is its first incident, and steps
    and trims work."""
    with tempfile.TemporaryDirectory(dir=ROOM) as name:
        path = Path(name) / "ledger.sqlite"
        actor = life(path.parent)
        driver = Driver(actor)
        for n in range(30):
            driver.put(done(f"r{n}", f"s{n}", incidents=2))
        actor._journal._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        actor._journal.close()
        whole = bytearray(path.read_bytes())
        at = number % (len(whole) // PAGE_BYTES) * PAGE_BYTES
        whole[at : at + PAGE_BYTES] = random.Random(dice.random()).randbytes(PAGE_BYTES)
        path.write_bytes(whole)

        driver = Driver(life(path.parent))
        aside = [file.name for file in path.parent.glob("*.unreadable-1")]
        told = driver.actor.incidents(Query(kind="journal"))
        assert [incident["evidence"]["put_aside"] for incident in told] == aside
        (grant,) = driver.granted(ask())
        driver.put(settled(grant), done("last", "s1", incidents=1))
        assert driver.actor.report(None, "last") is not None
        driver.actor._journal.trim(2e9)
        driver.actor._journal.close()
