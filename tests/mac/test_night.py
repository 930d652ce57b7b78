"""A Mac's night: kept awake for an agent, a GPU that gives up, and what the kernel counts of a process."""

import asyncio
from types import SimpleNamespace
from typing import Any

from deployments.app.keep_awake import LINGER_S, LOOK_S, KeepAwake
from deployments.memory.sensors.process_footprint import RusageInfo, read_footprint
from deployments.tiers.mlx.metal import is_gpu_lost
from tests.mac.assumptions import METAL_IGNORES, PHYS_FOOTPRINT_OFFSET

HOUR_S, DAY_S = 3600.0, 86_400.0


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
    assert is_gpu_lost(RuntimeError(METAL_IGNORES))
    assert not is_gpu_lost(RuntimeError(METAL_IGNORES.replace("Ignored", "Caused GPU Timeout Error").split(" (0")[0]))


def test_the_footprint_is_what_the_kernel_counts() -> None:
    """Law: of Apple's struct the counter is read that limits look at, and no other."""

    def rusage(_: int, __: int, info: Any) -> int:
        info.contents.phys_footprint, info.contents.resident_size = 9 << 30, 8 << 30
        return 0

    assert RusageInfo.phys_footprint.offset == PHYS_FOOTPRINT_OFFSET
    assert read_footprint(7, system="darwin", rusage=rusage) == 9 << 30
