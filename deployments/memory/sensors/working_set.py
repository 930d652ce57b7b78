"""How much of a GPU's memory may be used for models: one figure for leases, loading, budgets and the doctor.

Free memory is no measure on macOS: on one idle machine of 24 GB it was 19.1 and 10.7 GB, nine days apart. What counts
is the working set that Metal recommends, which follows `iogpu.wired_limit_mb` where a person has set that:

    sysctl `iogpu.wired_limit_mb`, if it isn't 0     read each time
    MLX's `max_recommended_working_set_size`         asked once: of the MLX in this process, else of one of its own
    neither can be had                               two thirds of the memory up to 32 GiB, three quarters of more

An NVIDIA GPU has memory of its own, and nine tenths of it are for models. Where a processor computes there is no such
figure (None), and the machine's free memory counts.
"""

from __future__ import annotations

import functools
import subprocess
import sys

from deployments.memory.sensors.computing import Computing, find_computing
from deployments.memory.sensors.macos import LEVEL, Kernel, SystemKernel

_WIRED_LIMIT = "iogpu.wired_limit_mb"
CRITICAL = 4  # of the kernel's pressure level
_GIB = 1 << 30
_ASKING_MAX_S = 60.0
_PROGRAM = "import sys, mlx.core as mx; print(int(mx.device_info()[sys.argv[1]]))"
_GPU_SHARE = 0.9  # what the driver, and MLX's kernels in it, take is not for models


def find_working_set() -> int | None:
    """Find how many bytes of this machine models may use. The first time it may take a second."""
    computing = find_computing()
    if computing is Computing.CUDA:
        total_bytes = _ask_mlx("total_memory")
        return None if total_bytes is None else int(total_bytes * _GPU_SHARE)
    if computing is Computing.CPU:
        return None
    return read_working_set(SystemKernel())


def find_level() -> int | None:
    """Find the kernel's pressure level: 1 normal, 2 warn, 4 critical; None where it is unknown."""
    return SystemKernel().sysctl_u32(LEVEL) if find_computing() is Computing.METAL else None


def read_working_set(kernel: Kernel) -> int | None:
    """Read a Mac's figure from the kernel; None where there is no Metal."""
    if find_computing() is not Computing.METAL:
        return None
    total_bytes, _ = kernel.memory_bytes()
    limit_mb = kernel.sysctl_u32(_WIRED_LIMIT)
    if limit_mb:
        return min(limit_mb << 20, total_bytes)
    return _ask_mlx("max_recommended_working_set_size") or estimate_working_set(total_bytes)


def _ask_mlx(name: str) -> int | None:
    """Ask MLX for a figure of the GPU. Not in this process where it hasn't loaded MLX: a monitor needs no GPU."""
    if "mlx.core" in sys.modules:
        return int(sys.modules["mlx.core"].device_info().get(name, 0)) or None
    return _ask_other_process(name)


@functools.cache
def _ask_other_process(name: str) -> int | None:
    try:
        command = [sys.executable, "-P", "-c", _PROGRAM, name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASKING_MAX_S, check=True)
        return int(done.stdout) or None
    except (OSError, subprocess.SubprocessError, ValueError):  # no MLX, or no GPU for this user
        return None


def estimate_working_set(total_bytes: int) -> int:
    """Estimate what Metal recommends on a Mac of so much memory."""
    if total_bytes <= 32 * _GIB:
        return total_bytes * 2 // 3
    return total_bytes * 3 // 4
