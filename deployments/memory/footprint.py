"""How much memory a process really costs its machine.

Linux: PSS (`/proc/PID/smaps_rollup`), which counts a page that n processes share as 1/n. macOS: `phys_footprint`
(`proc_pid_rusage`), which counts what Metal holds for the process; RSS misses that. The macOS part is not run here.

The kernel walks the process's page tables for it. Measured on 2026-11-22 (2 vCPU AMD EPYC Linux): 12 ms for a process
of 1 GB. So it is asked rarely, on a thread of its own, and never with a reading of the level.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path
from typing import Any

__all__ = ["footprint_bytes"]

_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)
_RUSAGE_INFO_V0 = 0


class RusageInfoV0(ctypes.Structure):
    """`rusage_info_v0` of <sys/resource.h>."""

    _fields_ = (
        ("uuid", ctypes.c_uint8 * 16),
        ("user_time", ctypes.c_uint64),
        ("system_time", ctypes.c_uint64),
        ("package_idle_wakeups", ctypes.c_uint64),
        ("interrupt_wakeups", ctypes.c_uint64),
        ("pageins", ctypes.c_uint64),
        ("wired_bytes", ctypes.c_uint64),
        ("resident_bytes", ctypes.c_uint64),
        ("footprint_bytes", ctypes.c_uint64),
        ("started_abstime", ctypes.c_uint64),
        ("exited_abstime", ctypes.c_uint64),
    )


def footprint_bytes(pid: int, *, proc: Path = Path("/proc"), lib: Any = None) -> int | None:
    """The footprint of a process; None where it is gone, another user's, or the platform has no word for it."""
    if sys.platform == "linux" and lib is None:
        return _pss(proc / str(pid) / "smaps_rollup")
    if sys.platform == "darwin" or lib is not None:
        return _phys_footprint(lib or ctypes.CDLL(None), pid)
    return None


def _pss(path: Path) -> int | None:
    try:
        found = _PSS.search(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return int(found[1]) * 1024 if found else None


def _phys_footprint(lib: Any, pid: int) -> int | None:
    info = RusageInfoV0()
    if lib.proc_pid_rusage(pid, _RUSAGE_INFO_V0, ctypes.byref(info)) != 0:
        return None
    return int(info.footprint_bytes)
