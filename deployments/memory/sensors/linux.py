"""The sensor for Linux, from files that the kernel keeps. A reading takes 0.1 ms.

psi, psi_cgroup   percent of the last 10 s in which some task waited for memory, of the machine and of the cgroup
used_share        1 - MemAvailable / MemTotal
cgroup_share      of the tightest limit above this process: what is used and isn't file cache
swap_out_mb       MB per second that leave for swap
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deployments.memory.sensors.sensor import SWAP_OUT_MB_PER_S, Counter, Sample, Sensor
from reliability.memory.pressure import LINUX_PSI, USED_SHARE, Reading, Thresholds

_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6
_AVG10 = re.compile(r"^some avg10=([\d.]+)", re.MULTILINE)
# A v1 cgroup without a limit has the largest number of pages as its limit.
_NO_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class _Cgroup:
    """A cgroup with a limit: the files of its use and statistics, and their name for the file cache."""

    limit_bytes: int
    used: Path
    stat: Path
    cache: str


class LinuxSensor(Sensor):
    """`root` is where /proc and /sys stand; `working_set_bytes`: of an NVIDIA GPU. It is polled: without
    privileges PSI triggers need a window of 2 s, no earlier than the next poll."""

    sources: Mapping[str, Thresholds] = {
        "psi": LINUX_PSI,
        "psi_cgroup": LINUX_PSI,
        "used_share": USED_SHARE,
        "cgroup_share": USED_SHARE,
        "swap_out_mb": SWAP_OUT_MB_PER_S,
    }

    def __init__(self, root: Path = Path("/"), *, working_set_bytes: int | None = None) -> None:
        self._working_set_bytes = working_set_bytes
        self._proc = root / "proc"
        self._swapped = Counter()
        folders_v2, folders_v1 = _find_cgroup_folders(root)
        limits = [*_find_limits(folders_v2, _V2), *_find_limits(folders_v1, _V1)]
        self._cgroup = min(limits, key=lambda group: group.limit_bytes, default=None)
        self._psi_cgroup = next((f / "memory.pressure" for f in folders_v2 if (f / "memory.pressure").exists()), None)

    def read(self, now_ns: int) -> Sample:
        meminfo = _read_text(self._proc / "meminfo")
        total, available = _find_bytes(meminfo, "MemTotal:"), _find_bytes(meminfo, "MemAvailable:")
        share = None if not total or available is None else 1 - available / total
        swapped = _find_number(_read_text(self._proc / "vmstat"), "pswpout")
        group_used = self._read_group_used()
        readings = [
            Reading("psi", _parse_avg10(_read_text(self._proc / "pressure/memory"))),
            Reading("psi_cgroup", _parse_avg10(_read_text(self._psi_cgroup)) if self._psi_cgroup else None),
            Reading("used_share", share),
            Reading("swap_out_mb", self._swapped.per_s(None if swapped is None else swapped * _PAGE_MB, now_ns)),
        ]
        if self._cgroup is not None and group_used is not None:
            limit_bytes = self._cgroup.limit_bytes
            readings.append(Reading("cgroup_share", group_used / limit_bytes))
            total = min(total or limit_bytes, limit_bytes)
            left = max(0, limit_bytes - group_used)
            available = left if available is None else min(available, left)
        return Sample(
            readings=tuple(readings),
            total_bytes=total,
            available_bytes=available,
            working_set_bytes=self._working_set_bytes,
            problem="" if share is not None else "/proc/meminfo can't be read",
        )

    def _read_group_used(self) -> int | None:
        """Read what the tightest cgroup uses, without the file cache that the kernel would drop first."""
        if self._cgroup is None:
            return None
        used = _read_text(self._cgroup.used).strip()
        if not used.isdigit():
            return None
        return max(0, int(used) - (_find_number(_read_text(self._cgroup.stat), self._cgroup.cache) or 0))


_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _find_cgroup_folders(root: Path) -> tuple[list[Path], list[Path]]:
    """Find the folders of this process's cgroup and of those above, innermost first: v2, and v1's memory controller."""
    paths: dict[str, str] = {}
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths |= dict.fromkeys(controllers.split(","), path)
    tree = root / "sys/fs/cgroup"
    unified = tree if (tree / "cgroup.controllers").exists() else tree / "unified"
    return _list_upwards(unified, paths.get("")), _list_upwards(tree / "memory", paths.get("memory"))


def _list_upwards(top: Path, path: str | None) -> list[Path]:
    if path is None:
        return []
    inner = top / path.lstrip("/")
    # Inside a container the path may be that of the host, and only the top exists here.
    return [f for f in (inner, *inner.parents) if f.is_relative_to(top) and f.is_dir()]


def _find_limits(folders: list[Path], names: tuple[str, str, str]) -> list[_Cgroup]:
    limit, used, cache = names
    found = []
    for folder in folders:
        text = _read_text(folder / limit).strip()
        if text.isdigit() and 0 < int(text) < _NO_LIMIT_BYTES:
            found.append(_Cgroup(int(text), folder / used, folder / "memory.stat", cache))
    return found


def _find_bytes(text: str, name: str) -> int | None:
    return None if (kib := _find_number(text, name)) is None else kib * 1024


def _find_number(text: str, name: str) -> int | None:
    _, found, rest = f"\n{text}".partition(f"\n{name} ")
    words = rest[:32].split(None, 1)
    return int(words[0]) if found and words and words[0].isdigit() else None


def _parse_avg10(text: str) -> float | None:
    found = _AVG10.search(text)
    return float(found[1]) if found else None


def _read_text(path: Path) -> str:
    """Read a small file's text; empty where it can't be read: the source is unknown then."""
    try:
        with path.open("rb", buffering=0) as file:
            return (file.read(65536) or b"").decode("ascii", "replace")
    except OSError:
        return ""
