"""A sensor that reads a file: for tests and demonstrations, on any machine.

    0    normal                     # an optional time in seconds, then a level, values of named sources, or both
    5    used_share=0.97 psi=3

The last line whose time has come counts. Environment variables in the path are expanded, so that each node may have a
file of its own. A file that can't be read is unknown, and the sample says why.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import psutil

from deployments.memory.sensors.sensor import NS_PER_S, SWAP_OUT_MB_PER_S, Sample, Sensor
from reliability.memory.pressure import LINUX_PSI, MACOS_LEVEL, USED_SHARE, Level, Reading, Thresholds

_SCRIPT_BYTES_MAX = 65536
# The scale of macOS stands for the words.
_LEVELS = {Level.NORMAL.value: 1.0, Level.WARN.value: 2.0, Level.CRITICAL.value: 4.0, Level.UNKNOWN.value: None}
_SOURCES: Mapping[str, Thresholds] = {
    "scripted": MACOS_LEVEL,
    "macos_level": MACOS_LEVEL,
    "used_share": USED_SHARE,
    "psi": LINUX_PSI,
    "swap_out_mb": SWAP_OUT_MB_PER_S,
}


def _parse(text: str) -> list[tuple[float, tuple[Reading, ...]]]:
    """Parse when the sources say what, in order of time. Raises ValueError with the line that can't be read."""
    steps = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        at_s = _parse_seconds(words[0])
        values = words if at_s is None else words[1:]
        steps.append((at_s or 0.0, tuple(_parse_reading(word, line) for word in values)))
    return sorted(steps, key=lambda step: step[0])


class ScriptedSensor(Sensor):
    """Reads the file at each poll. Time begins with the first reading."""

    sources = _SOURCES

    def __init__(self, path: str) -> None:
        self._path = Path(os.path.expanduser(os.path.expandvars(path)))  # `~` of nobody stays as it is
        self._began_ns: int | None = None

    def read(self, now_ns: int) -> Sample:
        began_ns = self._began_ns = now_ns if self._began_ns is None else self._began_ns
        memory = psutil.virtual_memory()
        steps, problem = [], ""
        try:
            with self._path.open(encoding="utf-8") as file:
                steps = _parse(file.read(_SCRIPT_BYTES_MAX))
        except (OSError, ValueError) as error:
            problem = f"{self._path.name}: {getattr(error, 'strerror', None) or error}"
        readings: tuple[Reading, ...] = ()
        for at_s, said in steps:
            if at_s <= (now_ns - began_ns) / NS_PER_S:
                readings = said
        return Sample(readings=readings, total_bytes=memory.total, available_bytes=memory.available, problem=problem)


def _parse_seconds(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _parse_reading(word: str, line: str) -> Reading:
    if word in _LEVELS:
        return Reading("scripted", _LEVELS[word])
    name, _, value = word.partition("=")
    number = _parse_seconds(value)
    if name not in _SOURCES or number is None:
        raise ValueError(f"{line.strip()!r}: neither a level nor one of {', '.join(_SOURCES)} with a value")
    return Reading(name, number)
