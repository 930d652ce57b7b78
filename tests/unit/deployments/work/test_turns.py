"""Whose job a worker does next, and who finds a place to wait."""

from __future__ import annotations

import asyncio

import pytest

from deployments.work import turns as lines
from deployments.work.turns import _WAIT_S, Asker, Turns
from tests.sim.clock import run as play
from tests.support.staging import staged

A, B = Asker("a"), Asker("b")
A_JUDGES, B_JUDGES = Asker("a", judges=True), Asker("b", judges=True)


class World:
    """Jobs that end when they are told to. `begun`: the askers, in the order of their turns."""

    def __init__(self, count: int = 1) -> None:
        self.turns = Turns(count)
        self.begun: list[Asker] = []
        self.refused: list[Asker] = []

    async def ask(self, *askers: Asker) -> list[asyncio.Task[None]]:
        tasks = [asyncio.ensure_future(self._take(asker)) for asker in askers]
        await settle()
        return tasks

    async def _take(self, asker: Asker) -> None:
        came = await self.turns.take(asker)
        (self.begun if came else self.refused).append(asker)

    async def end(self, *askers: Asker) -> None:
        for asker in askers:
            self.turns.pass_on(asker)
            await settle()

    async def end_all(self) -> None:
        ended = 0
        while ended < len(self.begun):
            await self.end(self.begun[ended])
            ended += 1


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


in_virtual_time = staged(lambda test: play(test()))


@in_virtual_time
async def test_turns_go_round_the_keys() -> None:
    """Law: however many jobs of one key wait, another key's is the next one or the one after it; each key's own jobs
    keep their order."""
    world = World()
    await world.ask(*[A] * 20, B, B)
    await world.end_all()
    assert world.begun[:6] == [A, A, B, A, B, A]
    assert len(world.begun) == 22


@in_virtual_time
async def test_a_key_holds_one_of_two_workers_while_another_waits() -> None:
    """Law: a worker that becomes free is for the key that has none."""
    world = World(2)
    await world.ask(*[A] * 10, B, B)
    assert world.begun == [A, A]
    await world.end(A)
    assert world.begun == [A, A, B]
    await world.end(B)
    assert world.begun == [A, A, B, B]


@in_virtual_time
async def test_a_judgement_comes_before_the_parsing_of_new_requests() -> None:
    """Law: an answer that exists waits for no new request, its own key's or another's; and no key's judgements keep
    another's requests from their turns."""
    world = World(2)
    await world.ask(*[A] * 10, B, A_JUDGES, B_JUDGES)
    await world.end(A, A)
    assert world.begun[2:] == [A_JUDGES, B_JUDGES]
    await world.ask(*[A_JUDGES] * 10)
    await world.end(B_JUDGES)
    assert world.begun[4:] == [A]
    await world.end(A)
    assert world.begun[5:] == [B]


@in_virtual_time
async def test_no_key_fills_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: where all places are taken, the key that has most of them gives up its newest; where all have as many, the
    new one is refused."""
    monkeypatch.setattr(lines, "_WAITING_MAX", 4)
    world = World()
    await world.ask(*[A] * 6)
    assert world.refused == [A]
    await world.ask(B, B)
    assert world.refused == [A, A, A]
    await world.ask(B)
    assert world.refused == [A, A, A, B]
    await world.end_all()
    assert world.begun == [A, A, B, A, B]


@in_virtual_time
async def test_a_judgement_finds_a_place_among_new_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a key's own judgement takes the place of its newest request, never the other way round; of another key's
    jobs its requests go first."""
    monkeypatch.setattr(lines, "_WAITING_MAX", 3)
    world = World()
    await world.ask(A, A, A, A, A_JUDGES)
    assert world.refused == [A]
    await world.ask(A_JUDGES, B)
    assert world.refused == [A, A, A]
    await world.ask(A)
    assert world.refused == [A, A, A, A]
    await world.end_all()
    assert world.begun == [A, A_JUDGES, A_JUDGES, B]


@in_virtual_time
async def test_who_waits_too_long_is_refused_and_leaves_no_trace() -> None:
    """Law: a wait ends after `_WAIT_S`, and a caller that leaves, with a turn or without, keeps no worker from the
    others."""
    world = World()
    await world.ask(A)
    (gone,) = await world.ask(B)
    gone.cancel()
    (late,) = await world.ask(B)
    await late
    assert asyncio.get_running_loop().time() == pytest.approx(_WAIT_S, abs=0.1)
    assert world.refused == [B]
    leaving, _ = await world.ask(B, A)
    world.turns.pass_on(A)
    leaving.cancel()
    await settle()
    assert world.begun == [A, A]
    await world.end(A)
    await world.ask(B)
    assert world.begun == [A, A, B]
