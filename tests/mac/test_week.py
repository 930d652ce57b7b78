"""One Mac of 48 GB for one week, hour by hour, on one clock: what a person's server meets there, one thing after the
other. Each has tests of its own beside this one; here none of them may undo what another has left.

    hour 0     three tiers start                     hours 0 to 7    the Mac sleeps, and nothing runs
    day 1      memory is short for an hour           each night      /tmp is cleaned
    day 3      Metal gives a process up              all day long    an agent works, with 60,000 tokens of history
    day 5      the agent works on battery
    day 6      an update, while launchd is busy
"""

import asyncio
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deployments.app.keep_awake import LINGER_S, LOOK_S, KeepAwake
from deployments.cli.service.init_system import Finished
from deployments.cli.service.launchd import Launchd
from deployments.memory.plan import MemoryPlan, MonitorSettings, TierNeed
from deployments.memory.room import find_room
from deployments.memory.sensors.computing import read_working_set
from deployments.memory.sensors.macos import MacosSensor
from deployments.models.sources import ModelUnavailable
from deployments.running import session_leader
from deployments.running.bounded_log import BoundedLog
from deployments.running.folder import RunFolder
from deployments.running.session_leader import SessionLeader
from deployments.tiers.mlx.metal import is_gpu_lost, wire
from reliability.memory.pressure import Level, Pressure, PressureConfig, level_at, observe
from tests.mac.assumptions import GIB, LAUNCHD_EIO, LAUNCHD_EIO_S, METAL_IGNORES, TMP_DAYS
from tests.mac.engines import Size, start
from tests.mac.scripted_mac import ScriptedMac

HOUR_S, DAY_S, NS_PER_S = 3600.0, 86_400.0, 1_000_000_000
HISTORY_TOKENS = 60_000
NEEDS = tuple(
    TierNeed(name=name, replica_bytes=gib * GIB, replicas_min=0, replicas_max=1)
    for name, gib in (("fast", 7), ("standard", 12), ("longctx", 11))
)
MODEL = Size(4 * GIB, 65_536, 262_144)


@dataclass
class BusyLaunchd:
    """launchd, which answers EIO for some seconds behind a `bootout`."""

    loaded: bool = True
    now_s: float = 0.0
    _gone_s: float = float("inf")

    def launchctl(self, command: Any) -> Finished:
        order = command[1]
        if order == "bootout":
            self.loaded, self._gone_s = False, self.now_s
        if order == "print":
            return Finished(0 if self.loaded else 113, "")
        if order == "bootstrap":
            if self.now_s < self._gone_s + LAUNCHD_EIO_S:
                return Finished(LAUNCHD_EIO, "Bootstrap failed: 5: Input/output error")
            self.loaded = True
        return Finished(0, "")

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class Week:
    """What there is in the week: the run's files and when each was touched, what holds the Mac awake, its memory's
    level, and what each tier has wired and can hold."""

    mac: ScriptedMac
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    now_s: float = field(default_factory=time.time)
    touched_s: dict[Path, float] = field(default_factory=dict)
    pressure: Pressure = field(default_factory=Pressure)
    on_mains: bool = True
    held: int = 0
    contexts: dict[str, int] = field(default_factory=dict)
    wired: dict[str, int] = field(default_factory=dict)

    def begin(self, tmp_path: Path) -> None:
        """Make the run, as `serve` does."""
        run = RunFolder.create(tmp_path / "ms-501", 8000)
        self.lock = run.hold()
        run.note(url="x")
        clock = SimpleNamespace(time=lambda: self.now_s, monotonic=time.monotonic)
        self.monkeypatch.setattr(session_leader, "time", clock)
        self.leader = SessionLeader(run, 0, 0, BoundedLog(tmp_path / "log"))
        self.touched_s = {path: self.now_s for path in (tmp_path / "ms-501").rglob("*") if path.is_file()}
        self.monkeypatch.setattr(os, "utime", lambda path, **_: self.touched_s.update({Path(path): self.now_s}))
        self.sensor = MacosSensor(self.mac, read_working_set)
        self.awake = KeepAwake(
            "requests", system="darwin", on_mains=lambda: self.on_mains, hold=self._hold, now_s=lambda: self.now_s
        )

    def _hold(self) -> Any:
        self.held += 1

        def terminate() -> None:
            self.held -= 1

        return SimpleNamespace(terminate=terminate, wait=lambda _: 0)

    def load(self, tier: str) -> None:
        """Start the tier's process: its engine loads, and wires its part."""
        room = find_room(MemoryPlan(settings=MonitorSettings(), needs=NEEDS), tier)
        self.contexts[tier] = start(self.folder, MODEL, self.monkeypatch, room=room).context_tokens
        self.wired[tier] = self.mac.wired[-1]

    async def pass_hour(self, *, works: bool) -> None:
        """Let an hour pass, awake: the session leader looks after the files, the monitor reads, the agent asks."""
        self.now_s += HOUR_S
        self.leader._refresh()
        for _ in range(30):
            self.now_s += 1
            now_ns = int(self.now_s * NS_PER_S)
            config = PressureConfig(sources=self.sensor.sources)
            self.pressure, _ = observe(self.pressure, config, self.sensor.read(now_ns).readings, now_ns)
        if works:
            self.awake.note(True)
            self.awake.note(False)
        await self.awake.look()

    def level(self) -> Level:
        return level_at(self.pressure, int(self.now_s * NS_PER_S))

    def clean_tmp(self) -> None:
        """Remove what was untouched for three days."""
        self.touched_s = {path: at for path, at in self.touched_s.items() if self.now_s - at < TMP_DAYS * DAY_S}


def test_a_week(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: at each hour of the week the tiers together have wired no more than the working set, each holds the agent's
    history, nothing of the run is cleaned away, and the Mac is kept awake for the agent, on mains alone."""
    mac = ScriptedMac(48, available_gb=8.0).start(monkeypatch)
    week = Week(mac, folder, monkeypatch)
    week.begin(tmp_path)
    files = set(week.touched_s)
    for need in NEEDS:
        week.load(need.name)

    async def play() -> None:
        for day in range(7):
            week.now_s += 8 * HOUR_S  # it sleeps
            week.clean_tmp()
            for hour in range(8, 24):
                if hour == 10:
                    play_event(day, week)
                week.on_mains = day != 5
                await week.pass_hour(works=hour < 22)

                assert files <= week.touched_s.keys()
                assert week.level() is (Level.CRITICAL if (day, hour) == (1, 10) else Level.NORMAL)
                assert sum(week.wired.values()) <= mac.working_set
                assert min(week.contexts.values()) >= HISTORY_TOKENS
                assert week.held == (hour < 22 and day != 5)
                mac.pressure = "normal"

    asyncio.run(play())
    os.close(week.lock)
    assert files
    assert LINGER_S + LOOK_S < HOUR_S


def play_event(day: int, week: Week) -> None:
    """What happens on this day, and what is seen of it at once."""
    if day == 1:
        week.mac.pressure = "critical"
        with pytest.raises(ModelUnavailable, match="critically short of memory") as caught:
            week.load("longctx")
        assert caught.value.again
    if day == 3:
        assert is_gpu_lost(RuntimeError(METAL_IGNORES))
        wire(0)  # the process ends, and Serve starts another one
        before = week.contexts["standard"], week.wired["standard"]
        week.load("standard")
        assert (week.contexts["standard"], week.wired["standard"]) == before
    if day == 6:
        launchd = BusyLaunchd()
        agent = Launchd(Path("/Users/x"), launchd.launchctl, launchd.sleep)
        agent.start()
        assert launchd.loaded
        assert "EIO" in agent.list_remarks()[0]
