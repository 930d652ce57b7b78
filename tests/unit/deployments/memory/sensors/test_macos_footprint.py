"""What a process holds, as its system counts it: macOS by a scripted kernel call, Linux for real."""

import ctypes
import mmap
import os
import sys
from typing import Any

import psutil
import pytest

from deployments.memory.monitor import _count_held_bytes
from deployments.memory.sensors.macos import _RusageInfo, read_footprint

MIB = 1024 * 1024


def answer(footprint: int, failed: int = 0) -> Any:
    """A `proc_pid_rusage` that fills the struct in, by Apple's offsets, or fails."""

    def rusage(pid: int, flavor: int, info: Any) -> int:
        assert (pid, flavor) == (7, 0)
        raw = ctypes.cast(info, ctypes.POINTER(ctypes.c_uint8 * ctypes.sizeof(_RusageInfo))).contents
        raw[72:80] = list(footprint.to_bytes(8, "little"))
        return failed

    return rusage


def test_the_struct_has_apple_s_layout() -> None:
    """Law: ten counters of eight bytes behind a UUID of sixteen; the footprint is the eighth of them."""
    assert ctypes.sizeof(_RusageInfo) == 96
    assert _RusageInfo.phys_footprint.offset == 72


def test_a_mac_is_asked_for_its_footprint() -> None:
    """Law: on macOS the kernel's own figure counts; where it can't be had for this process, resident memory does."""
    assert read_footprint(7, system="darwin", rusage=answer(123 * MIB)) == 123 * MIB
    here = os.getpid()
    fallen_back = read_footprint(here, system="darwin", rusage=lambda *_: -1)
    assert abs(fallen_back - psutil.Process(here).memory_info().rss) < 32 * MIB


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc says it there")
def test_linux_counts_what_the_process_touches() -> None:
    """Law: memory that is taken and written to is counted, and no more than all of it is resident."""
    before = read_footprint()
    with mmap.mmap(-1, 64 * MIB) as taken:
        taken.write(b"x" * (64 * MIB))
        after = read_footprint()
    assert 48 * MIB < after - before < 128 * MIB


def test_a_process_that_is_gone_holds_nothing_known() -> None:
    """Law: no figure, and no exception."""
    assert read_footprint(2**22 + 1, system="linux") is None


@pytest.mark.parametrize(("leased", "used", "system", "counted"), [
    (100, 150, "darwin", 150), (100, 50, "darwin", 100), (100, None, "darwin", 100), (0, 150, "darwin", 0),
    (100, 150, "linux", 100),
])  # fmt: skip
def test_a_mac_s_lease_counts_at_least_what_is_held(monkeypatch, leased, used, system, counted):
    """Law: a replica that has outgrown its lease counts with what it holds, on macOS; on Linux leases are as before,
    and a replica that only reports that it is there (nothing leased) stays at nothing."""
    monkeypatch.setattr(sys, "platform", system)
    assert _count_held_bytes(leased, used) == counted
