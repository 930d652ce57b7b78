"""How much of a Mac's memory may be used for models: one figure for leases, loading, budgets and the doctor.

Free memory is no measure on macOS: on one idle machine of 24 GB it was 19.1 and 10.7 GB, nine days apart. What counts
is the working set that Metal recommends, which follows `iogpu.wired_limit_mb` where a person has set that:

    sysctl `iogpu.wired_limit_mb`, if it isn't 0     read each time
    MLX's `max_recommended_working_set_size`         asked once: of the MLX in this process, else of one of its own
    neither can be had                               two thirds of the memory up to 32 GiB, three quarters of more

Where there is no Metal there is no such figure (None), and memory counts as it always has.
"""

from __future__ import annotations

import functools
import platform
import subprocess
import sys

from deployments.memory.sensors.macos import LEVEL, Kernel, SystemKernel

__all__ = ["CRITICAL", "WIRED_LIMIT", "find_level", "find_working_set", "has_metal", "read_working_set"]

WIRED_LIMIT = "iogpu.wired_limit_mb"
CRITICAL = 4  # of the kernel's pressure level
_GIB = 1 << 30
_ASKING_MAX_S = 60.0
_PROGRAM = "import mlx.core as mx; print(int(mx.device_info()['max_recommended_working_set_size']))"


def has_metal() -> bool:
    """Tell whether this machine computes with Metal, without loading MLX."""
    return sys.platform == "darwin" and platform.machine() == "arm64"


def find_working_set() -> int | None:
    """Find how many bytes of this machine models may use. The first time it may take a second."""
    return read_working_set(SystemKernel()) if has_metal() else None


def find_level() -> int | None:
    """Find the kernel's pressure level: 1 normal, 2 warn, 4 critical; None where it is unknown."""
    return SystemKernel().sysctl_u32(LEVEL) if has_metal() else None


def read_working_set(kernel: Kernel) -> int | None:
    """Read the figure from the kernel; None where there is no Metal."""
    if not has_metal():
        return None
    total_bytes, _ = kernel.memory_bytes()
    limit_mb = kernel.sysctl_u32(WIRED_LIMIT)
    if limit_mb:
        return min(limit_mb << 20, total_bytes)
    return _ask_metal() or _estimate(total_bytes)


def _ask_metal() -> int | None:
    """Ask MLX. Not in this process where it hasn't loaded MLX: a monitor needs no Metal."""
    if "mlx.core" in sys.modules:
        return int(sys.modules["mlx.core"].device_info().get("max_recommended_working_set_size", 0)) or None
    return _ask_other_process()


@functools.cache
def _ask_other_process() -> int | None:
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM], capture_output=True, text=True, timeout=_ASKING_MAX_S, check=True
        )
        return int(done.stdout) or None
    except (OSError, subprocess.SubprocessError, ValueError):  # no MLX, or no GPU for this user
        return None


def _estimate(total_bytes: int) -> int:
    return total_bytes * 2 // 3 if total_bytes <= 32 * _GIB else total_bytes * 3 // 4
