"""The view of a Router replica and the lease of a tier's replica, on a real Ray."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deployments.memory import nodes
from deployments.memory.lease import ReplicaLease
from deployments.memory.plan import MemoryPlan, TierNeed
from deployments.memory.view import MemoryView
from reliability.memory.pressure import Level
from tests.unit.deployments.memory.conftest import BUDGET, Knob

pytestmark = pytest.mark.ray

NEEDS = (TierNeed(name="fast", replica_bytes=400, replicas_min=1, replicas_max=10),)


def plan(knob: Knob) -> MemoryPlan:
    return MemoryPlan(settings=knob.settings, needs=NEEDS)


@asynccontextmanager
async def viewed(knob: Knob) -> AsyncIterator[MemoryView]:
    """A view that polls while the block runs."""
    view = MemoryView(plan(knob), knob.app)
    view.start()
    try:
        yield view
    finally:
        await view.close()


async def until(condition: Callable[[], Any], what: str, wait_s: float = 30.0) -> None:
    try:
        async with asyncio.timeout(wait_s):
            while not condition():  # noqa: ASYNC110  # what is waited for happens in other processes
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {wait_s:g} s: {what}") from None


async def test_a_view_starts_the_monitor_and_feels_the_level(knob: Knob):
    """The level, for how long, and what decided it; each transition is handed over once."""
    async with viewed(knob) as view:
        assert view.level().level is Level.UNKNOWN
        await until(lambda: view.level().level is Level.NORMAL, "normal")
        assert view.level().decided_by == ""
        knob.turn("warn")
        await until(lambda: view.level("fast").level is Level.WARN, "warn")
        await until(lambda: view.level().sustained_ns > 100_000_000, "it lasts")
        assert view.level().decided_by.startswith("scripted on ")
        assert [t.after for t in view.transitions()] == [Level.WARN]
        knob.turn("normal")
        await until(lambda: view.level().level is Level.NORMAL, "normal again")
        assert [t.after for t in view.transitions()] == [Level.NORMAL]
        assert view.transitions() == []


async def test_nobody_waits_for_a_hung_monitor(knob: Knob):
    """A monitor that is stopped: asking takes no time and the reading ages to unknown; then it is heard again."""
    async with viewed(knob) as view:
        await until(lambda: view.level().level is Level.NORMAL, "normal")
        pid = next(iter(view._nodes.values())).report.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await until(lambda: view.level().level is Level.UNKNOWN, "the reading is stale", 10)
            began = time.perf_counter()
            for _ in range(1000):
                view.level("fast")
            assert (time.perf_counter() - began) / 1000 < 0.0005
        finally:
            os.kill(pid, signal.SIGCONT)
        await until(lambda: view.level().level is Level.NORMAL, "it is heard again")


async def test_a_view_outlives_its_monitor(knob: Knob):
    """`kill -9` of the monitor: unknown for a moment at most, and known again by itself."""
    async with viewed(knob) as view:
        await until(lambda: view.level().level is Level.NORMAL, "normal")
        first = next(iter(view._nodes.values())).report
        os.kill(first.pid, signal.SIGKILL)
        await until(lambda: next(iter(view._nodes.values())).report.epoch != first.epoch, "its successor is heard")
        await until(lambda: view.level().level is Level.NORMAL, "normal")


async def test_a_replica_waits_for_its_bytes(knob: Knob):
    """Two leases of 600 in a budget of 1000: the second waits, as the summary says, and comes after the first."""
    async with viewed(knob) as view:
        first, second = (ReplicaLease(plan(knob), knob.app, "fast", name) for name in ("a", "b"))
        assert await first.hold(600) == ""
        waiting = asyncio.create_task(second.hold(600))
        await until(lambda: view.summary()["waiting"], "the second waits")
        summary = view.summary()
        assert summary["waiting"] == {"fast": "600 bytes needed, 400 of 1000 are free"}
        assert summary["capped"] == {"fast": "10 x 400 bytes wanted, 2 fit beside the others in 1000"}
        (node,) = summary["nodes"].values()
        assert (node["budget_bytes"], node["leased_bytes"], node["tiers"]) == (BUDGET, 600, ["fast"])
        await first.close()
        assert await asyncio.wait_for(waiting, 10) == ""
        await second.close()


async def test_what_can_never_be_had_is_said_at_once(knob: Knob):
    """More than the budget: no wait, the reason, and the replica is there all the same, with nothing."""
    lease = ReplicaLease(plan(knob), knob.app, "fast", "a")
    why = await asyncio.wait_for(lease.hold(BUDGET + 1), 20)
    assert why == "1001 bytes needed, the node's budget is 1000"
    await lease.close()


async def test_a_replica_learns_the_level_by_renewing(knob: Knob):
    """The answer to a renewal is the level of the node: no further call for it."""
    heard: list[Level] = []
    async with viewed(knob) as view:
        await until(lambda: view.level().level is Level.NORMAL, "normal")
        lease = ReplicaLease(plan(knob), knob.app, "fast", "a", heard.append)
        assert await lease.hold(1) == ""
        knob.turn("critical")
        await until(lambda: Level.CRITICAL in heard, "it has heard of it", 10)
        await lease.close()
        await until(lambda: not next(iter(view._nodes.values())).report.held, "nothing is held")


async def test_the_needs_reach_the_monitor(knob: Knob):
    """What the policy must know of the tiers comes with every call of a view or a replica."""
    async with viewed(knob) as view:
        await until(lambda: view.level().level is Level.NORMAL, "normal")
    assert knob.call("peek").needs == NEEDS
    assert len(nodes.find(knob.app)) == 1
