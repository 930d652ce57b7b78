"""What a machine reports of its memory, behind one protocol.

A sensor reads numbers that grow with trouble and names the thresholds of each (`sources`);
`reliability.memory.pressure` decides the level. What can't be read is None: neither normal nor an alarm. A sensor
never raises and keeps nothing but the counters of its last reading. `monitor.py` chooses the sensor.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from reliability.memory.pressure import Reading, Thresholds

# Pages that leave for the disk, in MB per second. Swap that is in use says little; swap that grows is trouble now. A
# model of 4 GB that is pushed out within two minutes goes at 32 MB/s; on a healthy machine less than 1 goes.
SWAP_OUT_MB_PER_S = Thresholds(warn_enter=4, warn_leave=1, critical_enter=32, critical_leave=8)
NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at the machine; None: unknown. `working_set_bytes`: what models may use of a GPU. `problem`: why
    something is unknown."""

    readings: tuple[Reading, ...] = ()
    total_bytes: int | None = None
    available_bytes: int | None = None
    working_set_bytes: int | None = None
    problem: str = ""


class Sensor:
    """A source of samples for one thread at a time; this one is for a platform that has none. `sources`: of all."""

    sources: Mapping[str, Thresholds] = {}

    def read(self, now_ns: int) -> Sample:
        """Look now. Takes under 1 ms, never raises. `now_ns` must not run backwards."""
        return Sample(problem=f"no memory sensor for {sys.platform}")


class Counter:
    """A growing count as a rate. The first value, and one below its predecessor, give None."""

    def __init__(self) -> None:
        self._last: tuple[float, int] | None = None

    def per_s(self, value: float | None, now_ns: int) -> float | None:
        """Compute the growth per second since the last call."""
        last, self._last = self._last, None if value is None else (value, now_ns)
        if value is None or last is None or now_ns <= last[1] or value < last[0]:
            return None
        return (value - last[0]) * NS_PER_S / (now_ns - last[1])
