"""What computes on this machine: one answer, for weights, conversions, memory and the models of `auto`.

CUDA: Linux, NVIDIA's driver, and MLX's library for CUDA in place; that is known by its size, which its package lists,
since several packages bring the same library. MLX isn't loaded for it: the Router and the commands ask, too. What
was seen on such a GPU: docs/decisions/064-cuda.md.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

from deployments.memory.sensors.macos import LEVEL, SystemKernel

_DEVICES = ("/dev/nvidiactl", "/dev/dxg")  # the driver's own, and that of Windows' subsystem for Linux
_PACKAGES = ("mlx-cuda-13", "mlx-cuda-12")
_LIBRARY = "mlx/lib/libmlx.so"


class Computing(StrEnum):
    """See the module."""

    METAL = "metal"
    CUDA = "cuda"
    CPU = "cpu"

    @property
    def owner(self) -> str:
        """Whose memory it computes in, for a sentence about bytes."""
        return {"metal": "that Metal may use on this Mac", "cuda": "that models may use of the GPU"}.get(self, "free")


def find_computing() -> Computing:
    """Find what computes. Takes a millisecond at most."""
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return Computing.METAL
    return Computing.CUDA if has_nvidia_gpu() and any(map(_is_in_place, _PACKAGES)) else Computing.CPU


def has_nvidia_gpu() -> bool:
    """Tell whether this is Linux with NVIDIA's driver and a GPU that isn't hidden from this process."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    return sys.platform == "linux" and not hidden and any(Path(device).exists() for device in _DEVICES)


def _is_in_place(package: str) -> bool:
    try:
        files = importlib.metadata.files(package) or ()
        return any(str(file) == _LIBRARY and Path(str(file.locate())).stat().st_size == file.size for file in files)
    except (importlib.metadata.PackageNotFoundError, OSError):
        return False


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


def read_working_set(kernel: SystemKernel) -> int | None:
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
