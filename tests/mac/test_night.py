"""A service on a Mac for a week: reinstalled, cleaned after, asleep and awake, and with a GPU that gives up."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deployments.graph.keep_awake import LINGER_S, LOOK_S, KeepAwake
from deployments.memory.sensors.process_footprint import RusageInfo, read_footprint
from deployments.running import keeper as keeper_module
from deployments.running.bounded_log import BoundedLog
from deployments.running.folder import RunFolder
from deployments.running.keeper import Keeper
from deployments.service.init_system import Finished
from deployments.service.launchd import Launchd
from deployments.tiers.mlx.gpu_lost import takes_no_more
from tests.mac.assumptions import LAUNCHD_EIO, LAUNCHD_EIO_S, METAL_IGNORES, PHYS_FOOTPRINT_OFFSET, TMP_DAYS

HOUR_S, DAY_S = 3600.0, 86_400.0


def test_an_update_finds_launchd_busy() -> None:
    """Law: reinstalled while launchd still lets go of the old agent, the service runs again, and what happened is
    said."""
    now_s, loaded = 0.0, True
    gone_s = float("inf")

    def launchctl(command: Any) -> Finished:
        nonlocal loaded, gone_s
        order = command[1]
        if order == "bootout":
            loaded, gone_s = False, now_s
        if order == "print":
            return Finished(0 if loaded else 113, "")
        if order == "bootstrap":
            if now_s < gone_s + LAUNCHD_EIO_S:
                return Finished(LAUNCHD_EIO, "Bootstrap failed: 5: Input/output error")
            loaded = True
        return Finished(0, "")

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    agent = Launchd(Path("/Users/x"), launchctl, sleep)
    agent.start()
    assert loaded
    assert "EIO" in agent.list_remarks()[0]


def test_a_week_of_cleaning_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a cleaner that removes each day what was untouched for three finds nothing of a run that lasts a week, also
    where the Mac slept for a night."""
    run = RunFolder.create(tmp_path / "ms-501", 8000)
    held = run.hold()
    run.note(url="x")
    files = [path for path in (tmp_path / "ms-501").rglob("*") if path.is_file()]
    clock = SimpleNamespace(time=lambda: now_s, monotonic=time.monotonic)
    now_s = time.time()
    monkeypatch.setattr(keeper_module, "time", clock)
    kept = Keeper(run, 0, 0, BoundedLog(tmp_path / "log"))
    touched_s = dict.fromkeys(files, now_s)
    monkeypatch.setattr(os, "utime", lambda path, **_: touched_s.update({Path(path): now_s}))
    oldest_s = 0.0
    for hour in range(7 * 24):
        now_s += HOUR_S
        if hour % 24 < 8:
            continue  # it sleeps, and nothing runs
        kept._refresh()
        oldest_s = max(oldest_s, *(now_s - touched_s[file] for file in files))
    os.close(held)

    assert files
    assert oldest_s < TMP_DAYS * DAY_S


def test_a_night_of_requests_on_mains_and_on_battery() -> None:
    """Law: while an agent works the Mac stays awake on mains; it may sleep on battery, and once the agent is done."""
    now_s, plugged, asserted = 0.0, True, 0

    def hold() -> Any:
        nonlocal asserted
        asserted += 1

        def terminate() -> None:
            nonlocal asserted
            asserted -= 1

        return SimpleNamespace(terminate=terminate, wait=lambda _: 0)

    awake = KeepAwake("requests", system="darwin", on_mains=lambda: plugged, hold=hold, now_s=lambda: now_s)

    async def night() -> list[int]:
        nonlocal now_s, plugged
        seen = []
        for minute in range(8 * 60):
            now_s += LOOK_S
            if minute < 6 * 60 and minute % 4 == 0:
                awake.note(True)
                awake.note(False)
            plugged = not 120 <= minute < 180
            await awake.look()
            seen.append(asserted)
        return seen

    seen = asyncio.run(night())
    assert set(seen[:120]) == {1}
    assert set(seen[120:180]) == {0}
    assert set(seen[180 : 6 * 60]) == {1}
    assert set(seen[6 * 60 + int(LINGER_S // LOOK_S) :]) == {0}


def test_metal_s_refusal_is_the_one_that_no_second_try_helps() -> None:
    """Law: Metal's words for submissions that it ignores end the process; a time-out alone doesn't."""
    assert takes_no_more(RuntimeError(METAL_IGNORES))
    assert not takes_no_more(RuntimeError(METAL_IGNORES.replace("Ignored", "Caused GPU Timeout Error").split(" (0")[0]))


def test_the_footprint_is_what_the_kernel_counts() -> None:
    """Law: of Apple's struct the counter is read that limits look at, and no other."""

    def rusage(_: int, __: int, info: Any) -> int:
        info.contents.phys_footprint, info.contents.resident_size = 9 << 30, 8 << 30
        return 0

    assert RusageInfo.phys_footprint.offset == PHYS_FOOTPRINT_OFFSET
    assert read_footprint(7, system="darwin", rusage=rusage) == 9 << 30
