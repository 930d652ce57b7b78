"""What computes on this machine: one answer, for everything that follows from it.

                     metal                    cuda                               cpu
    it is            Apple silicon            Linux, NVIDIA's driver, and        everything else
                                              MLX's library for CUDA in place
    weights          as on disk               as on disk                         16 bits as 32 (`models/precision.py`)
    a GGUF becomes   float16                  float16                            float32
    matrices         MLX's                    MLX's                              OpenBLAS, and kernels of our own
    memory           Metal's working set      nine tenths of the GPU's           what the machine has free
    scores           by the size of a head    by the size of a head              all of them
    `auto`           `models/mac_models.py`   the same, by the GPU's memory      small models

MLX isn't loaded for it: the Router and the commands ask, too. Several of MLX's packages bring the same library, and the
one that was installed last is in place; it is known by its size, which its package lists.

CUDA was not run: no such GPU could be had (2026-11-26). What is said of it is read from MLX 0.32.4.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

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
    return Computing.CUDA if has_nvidia_gpu() and _has_cuda_library() else Computing.CPU


def has_nvidia_gpu(environ: Mapping[str, str] | None = None) -> bool:
    """Tell whether this is Linux with NVIDIA's driver and a GPU that isn't hidden from this process."""
    hidden = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    return sys.platform == "linux" and not hidden and any(Path(device).exists() for device in _DEVICES)


def _has_cuda_library() -> bool:
    """Tell whether the library that MLX would load is one for CUDA."""
    return any(_is_in_place(package) for package in _PACKAGES)


def _is_in_place(package: str) -> bool:
    try:
        files = importlib.metadata.files(package) or ()
        return any(str(file) == _LIBRARY and Path(str(file.locate())).stat().st_size == file.size for file in files)
    except (importlib.metadata.PackageNotFoundError, OSError):
        return False
