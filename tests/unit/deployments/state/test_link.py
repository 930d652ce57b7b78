"""The link: whatever the wire loses, every item is done exactly once, and nobody waits in vain."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from deployments.state import link as links
from deployments.state.link import _CALL_S, Link, StateUnavailable
from deployments.state.records import Query, TurnItem
from reliability.admission.events import Charge
from reliability.admission.request import Grant
from reliability.loops import Turn
from reliability.types import Verdict
from tests.sim.links.world import FATES, World
from tests.support.incarnations import LIMITS, ask, done, settled
from tests.support.near_actor import NearActor

SEEDS = 200
PART = 25
LATER = [pytest.param(start, marks=pytest.mark.further) for start in range(2 * PART, SEEDS, PART)]


@pytest.mark.parametrize("start", [0, PART, *LATER])
def test_the_laws_hold_in_every_world(start):
    """Items are done once, tokens add up, nothing stays reserved, local asks don't wait for a link that is down."""
    seen: Counter[str] = Counter()
    waited = 0
    for seed in range(start, start + PART):
        world = World(seed)
        seen += world.play()
        waited += world.waited

    assert set(seen) == {*FATES, "well"}  # each fault came up
    assert waited > 0  # paid asks did wait for the actor, and got their answer


@contextlib.asynccontextmanager
async def playing(tmp_path: Path, **more: Any) -> AsyncGenerator[NearActor, None]:
    """A state actor whose link is started, and closed at the end."""
    near = NearActor(tmp_path, **more)
    await near.link.start(1.0)
    yield near
    await near.link.close()
    near.actor._journal.close()


async def test_no_step_is_empty_but_a_beat(tmp_path):
    """What comes up while a step is on its way goes together with the next one; nothing is sent when it has all been
    told; what waits for company (a settle, which goes with its report) is no reason for a step of its own."""
    async with playing(tmp_path) as near:
        begun = len(near.steps)
        near.open.clear()
        first = asyncio.create_task(near.link.admit(ask(session="a")))
        await asyncio.sleep(0.01)
        others = [asyncio.create_task(near.link.admit(ask(session=session))) for session in "bcde"]
        await asyncio.sleep(0.01)
        near.open.set()
        granted = (await first).decision
        near.link.put(settled(granted), flush=False)
        answers = await asyncio.gather(*others)
        assert all(isinstance(answer.decision, Grant) for answer in answers)
        await asyncio.sleep(0.01)
        assert near.link.waiting_items == 1
        near.link.put(done(), flush=True)
        await asyncio.sleep(0.01)
        assert near.link.waiting_items == 0
        assert [(len(step.requests), len(step.items)) for step in near.steps[begun:]] == [(1, 0), (4, 0), (0, 2)]


async def test_a_wait_is_no_longer_than_a_call(tmp_path):
    """An actor that hangs fails a local ask after `_CALL_S`, and every later one at once, until it answers again."""
    async with playing(tmp_path) as near:
        loop = asyncio.get_running_loop()
        await near.link.admit(ask())
        near.open.clear()
        began_s = loop.time()
        with pytest.raises(StateUnavailable):
            await near.link.admit(ask())
        assert loop.time() - began_s <= _CALL_S + 0.1
        assert not near.link.up
        began_s = loop.time()
        with pytest.raises(StateUnavailable):
            await near.link.admit(ask())
        assert loop.time() == began_s
        near.open.set()
        await asyncio.sleep(2 * _CALL_S)
        assert near.link.up
        assert isinstance((await near.link.admit(ask())).decision, Grant)


async def test_a_paid_ask_waits(tmp_path):
    """A paid ask is answered when the actor is back, in its order; one whose caller has left is not asked at all."""
    async with playing(tmp_path) as near:
        near.away = True
        paid = [asyncio.create_task(near.link.admit(ask("cloud", session=s, local=False))) for s in "abc"]
        await asyncio.sleep(30)
        assert not any(task.done() for task in paid)
        paid[1].cancel()
        near.away = False
        first, _, third = await asyncio.gather(*paid, return_exceptions=True)
        assert isinstance(first.decision, Grant)
        assert isinstance(third.decision, Grant)
        assert near.actor.stats()["grants"] == 2
        assert int(first.decision.id.rpartition(":")[2]) < int(third.decision.id.rpartition(":")[2])


async def test_one_search_at_a_time(tmp_path):
    """A search for the actor that hangs blocks nobody for longer than `_CALL_S`, and isn't begun a second time."""
    found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    near = NearActor(tmp_path)

    async def find() -> Any:
        near.finds += 1
        return await found

    link = Link(find, LIMITS)
    await link.start(0.1)
    with pytest.raises(StateUnavailable):
        await link.admit(ask())
    assert asyncio.get_running_loop().time() <= _CALL_S + 1
    paid = asyncio.create_task(link.admit(ask(local=False)))
    await asyncio.sleep(60)
    assert near.finds == 1
    found.set_result(near)
    assert isinstance((await paid).decision, Grant)
    await link.close()


async def test_the_queue_is_bounded(tmp_path, monkeypatch, caplog):
    """While the actor is away no more than `ITEMS_MAX` items wait: reports go first, charges last; the log says so."""
    monkeypatch.setattr(links, "_ITEMS_MAX", 10)
    async with playing(tmp_path) as near:
        answer = await near.link.admit(ask())
        near.away = True
        near.link.put(done("old"), flush=True)
        await asyncio.sleep(1)
        for n in range(20):
            near.link.put(Charge(key="k", session="s", tokens=1), flush=False) if n % 3 == 0 else None
            near.link.put(settled(answer.decision, 5) if n == 4 else done(f"r{n}"), flush=False)
            near.link.put(TurnItem(key="k", session="s", turn=Turn(text="x"), request="q"), flush=False)
            assert near.link.waiting_items <= 11  # with the one that is on its way
        near.away = False
        await asyncio.sleep(1)
        assert near.link.waiting_items == 0
        assert near.actor.budget("k", "s")["spent_tokens"] == 7 + 5
        assert near.actor.report("k", "old") is not None
        assert near.actor.report("k", "r19") is not None
        assert near.actor.report("k", "r0") is None
    assert "state_item_lost" in caplog.text


async def test_long_queues_are_sent_in_parts(tmp_path, monkeypatch):
    """However much waits: a step has at most its share, and everything arrives in its order."""
    monkeypatch.setattr(links, "_ITEMS_PER_STEP", 7)
    monkeypatch.setattr(links, "_REQUESTS_PER_STEP", 3)
    async with playing(tmp_path) as near:
        near.away = True
        near.link.put(done("first", incidents=1), flush=True)
        await asyncio.sleep(1)
        for n in range(50):
            near.link.put(done(f"r{n:02}", incidents=1), flush=False)
        paid = [asyncio.create_task(near.link.admit(ask("cloud", session=str(n % 4), local=False))) for n in range(10)]
        await asyncio.sleep(1)
        near.away = False
        await asyncio.gather(*paid)
        assert max(len(step.items) for step in near.steps) == 7
        assert max(len(step.requests) for step in near.steps) == 3
        await asyncio.sleep(1)
        found = [one["request_id"] for one in near.actor.browse(Query(limit=100))]
        assert found == [*sorted((f"r{n:02}" for n in range(50)), reverse=True), "first"]


async def test_closing_hands_over_what_is_left(tmp_path):
    """What was put before `close` arrives, also what was on its way; who asks afterwards is told at once."""
    near = NearActor(tmp_path)
    await near.link.start(1.0)
    near.open.clear()
    near.link.put(done("one"), flush=True)
    await asyncio.sleep(0.01)
    near.link.put(done("two"), flush=False)
    asyncio.get_running_loop().call_later(1, near.open.set)
    await near.link.close()
    assert near.link.waiting_items == 0
    for name in ("one", "two"):
        assert near.actor.report("k", name) is not None
    assert near.actor.books("k", "s")[0]["requests"] == 2
    for local in (True, False):
        with pytest.raises(StateUnavailable):
            await near.link.admit(ask(local=local))


async def test_closing_right_after_a_flush_ends(tmp_path):
    """`close` at the very moment when the pump wakes up is heard, and the item arrives."""
    for ticks in range(6):
        near = NearActor(tmp_path / str(ticks))
        await near.link.start(1.0)
        await asyncio.sleep(0.5)
        near.link.put(done(), flush=True)
        for _ in range(ticks):
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await near.link.close()
        assert near.actor.report("k", "r") is not None
        near.actor._journal.close()


async def test_closing_a_link_that_is_down_ends(tmp_path, caplog):
    """`close` tries once; whoever still waits is told, and the log says what was left."""
    near = NearActor(tmp_path)
    await near.link.start(1.0)
    near.away = True
    near.link.put(done(), flush=True)
    paid = asyncio.create_task(near.link.admit(ask(local=False)))
    await asyncio.sleep(10)
    await near.link.close()
    with pytest.raises(StateUnavailable):
        await paid
    assert asyncio.get_running_loop().time() < 10 + 2 * _CALL_S
    assert "state_items_left" in caplog.text


async def test_health_is_as_of_the_last_answer(tmp_path):
    """A breaker that opens is seen by every Router within a beat."""
    async with playing(tmp_path) as near:
        other = Link(near.find, LIMITS)
        await other.start(1.0)
        for _ in range(2):
            answer = await near.link.admit(ask())
            near.link.put(settled(answer.decision, 0, Verdict.FAILURE), flush=True)
        await asyncio.sleep(0.01)
        assert near.link.health["fast"].degraded
        await asyncio.sleep(1.1)
        assert other.health["fast"].degraded
        await other.close()


async def test_an_actor_that_answers_nonsense_is_no_actor(tmp_path):
    """An answer that isn't one for what was asked takes the link down; it does not hang or lose anything."""

    class Mad(NearActor):
        mad = True

        async def call(self, method: str, *args: Any) -> Any:
            answer = await super().call(method, *args)
            return "what?" if self.mad and method == "step" else answer

    near = Mad(tmp_path)
    await near.link.start(1.0)
    near.link.put(Charge(key="k", session="s", tokens=3), flush=True)
    with pytest.raises(StateUnavailable):
        await near.link.admit(ask())
    near.mad = False
    await asyncio.sleep(1)
    assert near.link.up
    assert near.actor.budget("k", "s")["spent_tokens"] == 3
    await near.link.close()
