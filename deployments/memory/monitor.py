"""MemoryPressure: one detached actor per node, the only writer of that node's level and of its leases.

No transition of its state has an `await` in it. It ends itself when neither a replica nor a view has called for
`linger_s`. A restart empties it: the level is back with the next reading, the leases with their holders' renewals, and
until every holder must have renewed (`lease_s`) it grants nothing.

Invariants: no call waits for the machine; no level comes from a reading that is older than `stale_s`; bytes that a
living replica holds are never granted again.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import time
import uuid
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray

from deployments.memory.plan import Holder, MonitorSettings, NodeReport, TierNeed, Transition
from deployments.memory.sensors.computing import find_working_set, read_working_set
from deployments.memory.sensors.linux import LinuxSensor
from deployments.memory.sensors.macos import MacosSensor
from deployments.memory.sensors.scripted import ScriptedSensor
from deployments.memory.sensors.sensor import NS_PER_S, Sample, Sensor
from deployments.telemetry import log_error
from reliability.memory import leases as ledger
from reliability.memory.leases import Lease, LeaseAnswer, Leases
from reliability.memory.pressure import Level, Pressure, PressureConfig, level_at, measure_sustained_ns, observe

TRANSITIONS_MAX = 64
# Every latch times out: a level that is only held, and not called for, is left after this.
_LATCH_S = 300.0


class MemoryPressure:
    """The actor. All times in its answers are durations: a moment means nothing in another process."""

    def __init__(self, settings: MonitorSettings) -> None:
        self._settings = settings
        self._sensor = _make_sensor(settings.sensor)
        self._config = PressureConfig(
            sources=self._sensor.sources,
            calm_ns=_ns(settings.calm_s),
            latch_ns=_ns(max(_LATCH_S, settings.calm_s)),
            stale_ns=_ns(settings.stale_s),
        )
        self._node, restarted = _find_identity()
        self._epoch = uuid.uuid4().hex[:12]
        self._started_unix_s = time.time()
        self._pressure = Pressure()
        self._sample = Sample()
        self._leases = Leases()
        self._used: dict[str, int] = {}
        self._needs: tuple[TierNeed, ...] = ()
        self._caps: Mapping[str, str] = {}
        self._transitions: deque[tuple[int, Transition]] = deque(maxlen=TRANSITIONS_MAX)
        self._seen = 0
        self._asked_ns = time.monotonic_ns()
        self._grants_from_ns = self._asked_ns + (_ns(settings.lease_s) if restarted else 0)
        self._polling: asyncio.Task[None] | None = None

    async def acquire(self, holder: str, tier: str, wanted_bytes: int, needs: Sequence[TierNeed] = ()) -> LeaseAnswer:
        """Ask for bytes; asking again is how a replica waits. One that asks no more is forgotten in `lease_s`."""
        now_ns = self._note_call(needs)
        if now_ns < self._grants_from_ns and wanted_bytes > 0:
            return LeaseAnswer(False, why="the monitor was restarted and waits for the holders to renew")
        self._leases, answer = ledger.acquire(
            self._leases,
            holder,
            tier,
            wanted_bytes,
            budget_bytes=self._budget_bytes(),
            level=level_at(self._pressure, now_ns),
            ttl_ns=_ns(self._settings.lease_s),
            now_ns=now_ns,
        )
        return answer

    async def renew(
        self, holder: str, tier: str, held_bytes: int, needs: Sequence[TierNeed] = (), used_bytes: int | None = None
    ) -> Level:
        """Renew the lease of a holder; return the node's level. `used_bytes`: what its process holds."""
        now_ns = self._note_call(needs)
        counted, ttl_ns = _count_held_bytes(held_bytes, used_bytes), _ns(self._settings.lease_s)
        self._leases = ledger.renew(self._leases, holder, tier, counted, ttl_ns=ttl_ns, now_ns=now_ns)
        self._used = {name: used for name, used in self._used.items() if name in self._leases.held}
        if used_bytes is not None:
            self._used[holder] = used_bytes
        return level_at(self._pressure, now_ns)

    async def release(self, holder: str) -> None:
        """Free the bytes of a holder, or forget what it wanted."""
        self._note_call()
        self._leases = ledger.release(self._leases, holder)

    async def report(self, epoch: str = "", seen: int = 0, needs: Sequence[TierNeed] = ()) -> tuple[int, NodeReport]:
        """Return the number to ask with next time, and the report, with the transitions after `seen` of `epoch`."""
        now_ns = self._note_call(needs)
        return self._seen, self._report(now_ns, after=seen if epoch == self._epoch else 0)

    async def peek(self, caps: Mapping[str, str] | None = None) -> NodeReport:
        """Return the report for the policy: without transitions, and without counting as a call. `caps`: why tiers
        don't get what they want, kept for the views."""
        if caps is not None:
            self._caps = dict(caps)
        self._start_polling()
        return self._report(time.monotonic_ns(), after=self._seen)

    def _note_call(self, needs: Sequence[TierNeed] = ()) -> int:
        self._start_polling()
        if needs:
            self._needs = tuple(needs)
        self._asked_ns = time.monotonic_ns()
        self._leases = ledger.expire(self._leases, self._asked_ns)
        return self._asked_ns

    def _start_polling(self) -> None:
        if self._polling is not None:
            return
        self._read_sensor()
        self._polling = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        linger_ns = _ns(self._settings.linger_s)
        while time.monotonic_ns() - self._asked_ns < linger_ns:
            await asyncio.sleep(self._settings.poll_s)
            self._read_sensor()
        ray.kill(ray.get_runtime_context().current_actor)

    def _read_sensor(self) -> None:
        now_ns = time.monotonic_ns()
        try:
            self._sample = self._sensor.read(now_ns)
        except Exception as error:  # a bug of the sensor's must not end the loop: its reading is unknown
            log_error("memory_sensor_raised", error, node=self._node)
            self._sample = Sample(problem=f"the sensor raised {type(error).__name__}")
        before, self._pressure = self._pressure, observe(self._pressure, self._config, self._sample.readings, now_ns)
        after = self._pressure
        self._leases = ledger.expire(self._leases, now_ns)
        # That a monitor has begun to know that all is well is no event.
        begun = before.level is Level.UNKNOWN and not self._transitions
        if after.level is not before.level and not (begun and after.level is Level.NORMAL):
            self._seen += 1
            transition = Transition(
                id=f"{self._epoch}:{self._seen}",
                before=before.level,
                after=after.level,
                **self._describe_node(after.source or before.source, now_ns),
            )
            self._transitions.append((now_ns, transition))

    def _budget_bytes(self) -> int | None:
        return self._settings.budget_of(self._sample.total_bytes, self._sample.working_set_bytes)

    def _describe_node(self, source: str, now_ns: int) -> dict[str, Any]:
        return {
            "node": self._node,
            "host": platform.node(),
            "source": source,
            "values": {name: value for name, (value, _) in self._pressure.values.items()},
            "total_bytes": self._sample.total_bytes,
            "available_bytes": self._sample.available_bytes,
            "budget_bytes": self._budget_bytes(),
            "held": self._holders(self._leases.held, now_ns),
        }

    def _report(self, now_ns: int, *, after: int) -> NodeReport:
        new = [(at_ns, t) for at_ns, t in self._transitions if int(t.id.rpartition(":")[2]) > after]
        return NodeReport(
            pid=os.getpid(),
            epoch=self._epoch,
            started_unix_s=self._started_unix_s,
            level=level_at(self._pressure, now_ns),
            sustained_s=measure_sustained_ns(self._pressure, now_ns) / NS_PER_S,
            fresh_s=max(0, self._pressure.fresh_until_ns - now_ns) / NS_PER_S,
            waiting=self._holders(self._leases.waiting, now_ns),
            needs=self._needs,
            caps=self._caps,
            transitions=tuple(replace(t, age_s=(now_ns - at_ns) / NS_PER_S) for at_ns, t in new),
            problem=self._sample.problem,
            **self._describe_node(self._pressure.source, now_ns),
        )

    def _holders(self, leases: Mapping[str, Lease], now_ns: int) -> tuple[Holder, ...]:
        return tuple(
            Holder(
                holder=name,
                tier=lease.tier,
                bytes=lease.bytes,
                since_s=(now_ns - lease.since_ns) / NS_PER_S,
                why=lease.why,
                used_bytes=self._used.get(name),
            )
            for name, lease in leases.items()
        )


def _make_sensor(which: str) -> Sensor:
    """Make the sensor that the key `sensor` names: `auto`, or `scripted:PATH`."""
    kind, _, path = which.partition(":")
    if kind == "scripted":
        return ScriptedSensor(path)
    # Both ask the GPU, once: a reading must not take that long.
    if sys.platform == "linux":
        return LinuxSensor(working_set_bytes=find_working_set())
    if sys.platform == "darwin":
        find_working_set()
        return MacosSensor(read_working_set=read_working_set)
    return Sensor()


def _count_held_bytes(leased_bytes: int, used_bytes: int | None) -> int:
    """Return what a replica's lease counts for: on macOS no less than what its process really holds, since the kernel
    ends it by that; elsewhere what was leased."""
    return max(leased_bytes, used_bytes or 0) if sys.platform == "darwin" and leased_bytes else leased_bytes


def _ns(seconds: float) -> int:
    return int(seconds * NS_PER_S)


def _find_identity() -> tuple[str, bool]:
    """Find the node that this actor stands on, and whether it is a restart. Without Ray: neither."""
    if not ray.is_initialized():
        return "", False
    context = ray.get_runtime_context()
    with warnings.catch_warnings():  # Ray asks itself by a name that it has deprecated
        warnings.simplefilter("ignore")
        return context.get_node_id(), context.was_current_actor_reconstructed
