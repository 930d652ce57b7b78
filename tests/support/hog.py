"""A process that joins a memory cgroup with a limit, takes memory and gives it back: what its sensor makes of it.

Run as `python -m tests.support.hog FOLDER`, where FOLDER is the cgroup. Prints the moves between levels.
"""

import mmap
import os
import sys
import time
from pathlib import Path

from deployments.memory.sensors.linux import LinuxSensor
from reliability.memory.pressure import Level, Pressure, PressureConfig, observe

LIMIT = 200 << 20


def taken(size: int) -> mmap.mmap:
    """So many bytes, every page of them touched, and not one page more for a moment."""
    block = mmap.mmap(-1, max(1, size))
    for at in range(0, size, mmap.PAGESIZE):
        block[at] = 1
    return block


def main(folder: Path) -> None:
    """Join, then take 90 %, 97 % and nothing of the limit."""
    limit = next(f for f in (folder / "memory.max", folder / "memory.limit_in_bytes") if f.exists())
    limit.write_text(str(LIMIT))
    (folder / "cgroup.procs").write_text(str(os.getpid()))
    sensor = LinuxSensor()
    config = PressureConfig(sources={"cgroup_share": sensor.sources["cgroup_share"]}, calm_ns=50_000_000)
    pressure, moves = Pressure(), []
    held: list[mmap.mmap] = []
    for share, wanted in ((0.0, Level.NORMAL), (0.90, Level.WARN), (0.97, Level.CRITICAL), (0.0, Level.NORMAL)):
        used = sum(r.value or 0 for r in sensor.read(time.monotonic_ns()).readings if r.source == "cgroup_share")
        if share:
            held.append(taken(int((share - used) * LIMIT)))
        else:
            for block in held:
                block.close()
            held.clear()
        deadline = time.monotonic() + 20
        while pressure.level is not wanted and time.monotonic() < deadline:
            before, now_ns = pressure.level, time.monotonic_ns()
            pressure = observe(pressure, config, sensor.read(now_ns).readings, now_ns)
            if pressure.level is not before:
                moves.append(pressure.level.value)
            time.sleep(0.01)
    print(" ".join(moves))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
