"""The monitor on a real Ray: levels from a scripted file, leases, restarts, and its end."""

import gc
import os
import signal
import time
import types

import pytest

from deployments.memory import nodes
from deployments.memory.plan import MemoryPlan
from tests.support.serving import until
from tests.unit.deployments.memory.conftest import BUDGET, Knob

pytestmark = pytest.mark.ray


def test_normal_warn_critical_normal(knob: Knob):
    """The level follows the sensor up at once and down one step at a time, and each move is kept with a snapshot."""
    until(lambda: knob.level() == "normal", "the first reading")
    knob.call("acquire", "r1", "fast", 400)
    for words in ("warn", "critical", "normal"):
        knob.turn(words)
        until(lambda words=words: knob.level() == words, f"the level is {words}")

    _, report = knob.call("report")
    moves = [(t.before.value, t.after.value) for t in report.transitions]
    assert moves == [("normal", "warn"), ("warn", "critical"), ("critical", "warn"), ("warn", "normal")]
    worst = report.transitions[1]
    assert worst.source == "scripted"
    assert [(h.tier, h.bytes) for h in worst.held] == [("fast", 400)]
    assert worst.snapshot()["held"][0]["replica"] == "r1"
    assert worst.snapshot()["budget_bytes"] == BUDGET


def test_transitions_are_handed_over_once(knob: Knob):
    """Who asks with the number of its last report gets what is new since then; another life's number gets all."""
    until(lambda: knob.level() == "normal", "the first reading")
    knob.turn("critical")
    until(lambda: knob.level() == "critical", "critical")
    seen, first = knob.call("report")
    _, second = knob.call("report", first.epoch, seen)
    _, stranger = knob.call("report", "another life", seen)
    assert (len(first.transitions), len(second.transitions), len(stranger.transitions)) == (1, 0, 1)


def test_a_silent_sensor_is_unknown(knob: Knob):
    """Without a reading the level ages to unknown, and the report says what is wrong with the sensor."""
    until(lambda: knob.level() == "normal", "the first reading")
    knob.path.unlink()
    until(lambda: knob.level() == "unknown", "the reading is stale")
    report = knob.call("peek")
    assert report.fresh_s == 0
    assert "No such file" in report.problem


def test_the_bytes_of_a_killed_holder_come_back(knob: Knob):
    """`kill -9` of the holder: its lease runs out by time, and the next one gets the bytes."""
    import ray

    @ray.remote(num_cpus=0)
    class Holder:
        """Holds a lease as a tier's replica does."""

        async def hold(self, plan, app: str) -> str:
            from deployments.memory.lease import ReplicaLease

            self.lease = ReplicaLease(plan, app, "fast", "victim")
            return await self.lease.hold(900)

        def pid(self) -> int:
            return os.getpid()

    holder = Holder.remote()
    assert ray.get(holder.hold.remote(MemoryPlan(settings=knob.settings), knob.app), timeout=60) == ""
    until(lambda: knob.call("peek").held[0].since_s > 2 * knob.settings.lease_s, "it has renewed")
    assert not knob.call("acquire", "next", "fast", 900).granted
    os.kill(ray.get(holder.pid.remote(), timeout=30), signal.SIGKILL)
    until(lambda: knob.call("acquire", "next", "fast", 900).granted, "the bytes are free", wait_s=15)


def test_a_killed_monitor_comes_back_and_relearns_its_leases(knob: Knob):
    """`kill -9` of the monitor: Ray restarts it, its level is back, and what is held isn't granted again."""
    first = knob.call("peek")
    assert knob.call("acquire", "a", "fast", 900).granted
    os.kill(knob.call("peek").pid, signal.SIGKILL)

    def renewed() -> bool:
        try:
            knob.call("renew", "a", "fast", 900)
        except Exception:
            return False
        return bool(knob.call("peek").epoch != first.epoch)

    until(renewed, "the monitor is back")
    until(lambda: knob.level() == "normal", "its level is back")
    barred = knob.call("acquire", "b", "standard", 200)
    assert not barred.granted

    def settled() -> bool:
        knob.call("renew", "a", "fast", 900)
        return "100 of 1000 are free" in knob.call("acquire", "b", "standard", 200).why

    until(settled, "the holder's bytes count again")


def test_a_monitor_that_nobody_asks_ends(knob: Knob):
    """Nothing is left over: without a replica or a view it goes; the policy's peeks don't keep it."""
    pid = knob.call("peek").pid
    handle = knob.handle()

    def gone() -> bool:
        import ray

        try:
            ray.get(handle.peek.remote(), timeout=5)
        except Exception:
            return not nodes.find(knob.app)
        return False

    until(gone, "it has ended", wait_s=20)
    until(lambda: not os.path.exists(f"/proc/{pid}"), "its process has ended")


def test_all_who_ask_at_once_get_the_same(knob: Knob):
    """Several makers at the same time make one actor."""
    import ray

    settings, app = knob.settings, knob.app

    @ray.remote(num_cpus=0)
    def epoch() -> str:
        return ray.get(nodes.here(app, settings).peek.remote()).epoch

    assert len(set(ray.get([epoch.remote() for _ in range(4)], timeout=60))) == 1
    assert len(nodes.find(app)) == 1


def test_a_report_costs_little(knob: Knob):
    """A poll of the monitor is answered far within its timeout of a second, also on a busy machine."""
    knob.call("peek")
    handle, took_s = knob.handle(), []
    import ray

    for _ in range(50):
        began = time.perf_counter()
        ray.get(handle.peek.remote())
        took_s.append(time.perf_counter() - began)
    assert sorted(took_s)[25] < 0.25


def test_asking_for_the_monitor_leaves_nothing_behind(knob: Knob):
    """A Router asks every few seconds, for weeks: what Ray makes of the class is made once."""
    knob.handle()
    before = functions()
    for _ in range(5):
        knob.handle()

    assert functions() - before < 5


def functions() -> int:
    """How many this process holds that Ray makes for an actor's class: some dozens for each."""
    gc.collect()
    made = [one.__qualname__ for one in gc.get_objects() if isinstance(one, types.FunctionType)]
    return sum("_modify_class" in name or "_make_actor" in name or "MemoryPressure" in name for name in made)
