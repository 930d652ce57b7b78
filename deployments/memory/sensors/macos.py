"""The sensor for macOS, and what one process holds, from the kernel's own calls. Written from Apple's headers and
tested with fakes, not run (tests/mac/assumptions.py).

Free memory is no source: a healthy Mac keeps little of it, and the kernel's level (1 normal, 2 warn, 4 critical) knows
what the compressor can still do. Libdispatch's memory-pressure events may come later than the level: nothing waits for
them.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from collections.abc import Callable, Mapping

import psutil

from deployments.memory.sensors.sensor import SWAP_OUT_MB_PER_S, Counter, Sample, Sensor
from reliability.memory.pressure import MACOS_LEVEL, Reading, Thresholds

LEVEL = "kern.memorystatus_vm_pressure_level"
_LEVELS = (1, 2, 4)
_HOST_VM_INFO64 = 4
_RUSAGE_INFO_V0 = 0


class MacosSensor(Sensor):
    """Asks `kernel`, and `read_working_set` for what models may use of the GPU."""

    sources: Mapping[str, Thresholds] = {"macos_level": MACOS_LEVEL, "swap_out_mb": SWAP_OUT_MB_PER_S}

    def __init__(
        self,
        kernel: SystemKernel | None = None,
        read_working_set: Callable[[SystemKernel], int | None] = lambda _: None,
    ) -> None:
        self._kernel = kernel or SystemKernel()
        self._read_working_set = read_working_set
        self._swapped = Counter()

    def read(self, now_ns: int) -> Sample:
        level = self._kernel.sysctl_u32(LEVEL)
        known = float(level) if level in _LEVELS else None
        swapped = self._kernel.read_swap_out_bytes()
        rate = self._swapped.per_s(None if swapped is None else swapped / 1e6, now_ns)
        total, available = self._kernel.memory_bytes()
        return Sample(
            readings=(Reading("macos_level", known), Reading("swap_out_mb", rate)),
            total_bytes=total,
            available_bytes=available,
            working_set_bytes=self._read_working_set(self._kernel),
            problem="" if known is not None else f"sysctl {LEVEL} says {level}",
        )


class _VmStatistics64(ctypes.Structure):
    """`vm_statistics64` of <mach/vm_statistics.h>. `natural_t` is 32 bits wide."""

    _fields_ = (
        ("pages", ctypes.c_uint32 * 4),  # free, active, inactive, wire
        # zero_fill, reactivations, pageins, pageouts, faults, cow, lookups, hits, purges
        ("events", ctypes.c_uint64 * 9),
        ("more_pages", ctypes.c_uint32 * 2),  # purgeable, speculative
        ("decompressions", ctypes.c_uint64),
        ("compressions", ctypes.c_uint64),
        ("swapins", ctypes.c_uint64),
        ("swapouts", ctypes.c_uint64),
        ("kinds_of_pages", ctypes.c_uint32 * 4),  # compressor, throttled, external, internal
        ("uncompressed_in_compressor", ctypes.c_uint64),
    )


class SystemKernel:
    """The calls of macOS that are made here, by ctypes on libSystem. None: the call failed."""

    def __init__(self) -> None:
        self._lib = ctypes.CDLL(None)
        pointer = ctypes.c_void_p
        self._lib.sysctlbyname.argtypes = [ctypes.c_char_p, pointer, pointer, pointer, ctypes.c_size_t]
        self._lib.host_statistics64.argtypes = [ctypes.c_uint32, ctypes.c_int, pointer, pointer]
        self._lib.mach_host_self.restype = ctypes.c_uint32
        self._host = self._lib.mach_host_self()  # once: each call takes a port right
        self._page_bytes = ctypes.c_uint64.in_dll(self._lib, "vm_kernel_page_size").value

    def sysctl_u32(self, name: str) -> int | None:
        """Read a sysctl of four bytes."""
        value, size = ctypes.c_uint32(), ctypes.c_size_t(4)
        failed = self._lib.sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
        return None if failed else value.value

    def read_swap_out_bytes(self) -> int | None:
        """Read what has left for swap since the start."""
        statistics = _VmStatistics64()
        count = ctypes.c_uint32(ctypes.sizeof(statistics) // 4)
        failed = self._lib.host_statistics64(self._host, _HOST_VM_INFO64, ctypes.byref(statistics), ctypes.byref(count))
        return None if failed else int(statistics.swapouts) * self._page_bytes

    def memory_bytes(self) -> tuple[int, int]:
        """Read the total, and what is available."""
        memory = psutil.virtual_memory()
        return memory.total, memory.available


class _RusageInfo(ctypes.Structure):
    """`struct rusage_info_v0` of <sys/resource.h>: a UUID of 16 bytes, then ten counters of 8."""

    _fields_ = (
        ("uuid", ctypes.c_uint8 * 16),
        ("counters", ctypes.c_uint64 * 7),  # times, wake-ups, page-ins, wired and resident size
        ("phys_footprint", ctypes.c_uint64),
        ("start_and_end", ctypes.c_uint64 * 2),
    )


_Rusage = Callable[[int, int, "ctypes._Pointer[_RusageInfo]"], int]


def read_footprint(pid: int | None = None, *, system: str = sys.platform, rusage: _Rusage | None = None) -> int | None:
    """Return the bytes that a process holds, by default this one: on macOS `ri_phys_footprint`, which has the GPU's
    part, elsewhere resident memory; None where it is gone or may not be seen. `rusage` is the kernel's call."""
    pid = pid or os.getpid()
    if system == "darwin":
        info, read = _RusageInfo(), rusage or _load_rusage()
        if not read(pid, _RUSAGE_INFO_V0, ctypes.pointer(info)):  # 0: it has been read
            return int(info.phys_footprint)
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


def _load_rusage() -> _Rusage:
    call = ctypes.CDLL(None).proc_pid_rusage
    call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.POINTER(_RusageInfo)]
    call.restype = ctypes.c_int
    return call
