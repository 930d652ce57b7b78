"""What one process holds in memory: `ri_phys_footprint` on macOS (with the GPU's part), else resident memory.

Written from Apple's <sys/resource.h> and not run on macOS (tests/mac/assumptions.py).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

import psutil

RUSAGE_INFO_V0 = 0


class _RusageInfo(ctypes.Structure):
    """`struct rusage_info_v0` of <sys/resource.h>: a UUID of 16 bytes, then ten counters of 8."""

    _fields_ = (
        ("uuid", ctypes.c_uint8 * 16),
        ("counters", ctypes.c_uint64 * 7),  # times, wake-ups, page-ins, wired and resident size
        ("phys_footprint", ctypes.c_uint64),
        ("start_and_end", ctypes.c_uint64 * 2),
    )


Rusage = Callable[[int, int, "ctypes._Pointer[_RusageInfo]"], int]


def read_footprint(pid: int | None = None, *, system: str = sys.platform, rusage: Rusage | None = None) -> int | None:
    """Return the bytes that a process holds, by default this one; None where it is gone or may not be seen. `rusage`
    is the kernel's call."""
    pid = pid or os.getpid()
    if system == "darwin":
        info, read = _RusageInfo(), rusage or _load_rusage()
        if not read(pid, RUSAGE_INFO_V0, ctypes.pointer(info)):  # 0: it has been read
            return int(info.phys_footprint)
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


def _load_rusage() -> Rusage:
    call = ctypes.CDLL(None).proc_pid_rusage
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.POINTER(_RusageInfo)]
    call.restype = ctypes.c_int
    return call
