"""The binary that computes in the place of MLX's CPU build: `kernels_x86_64.so`, built beforehand and pinned
(`deployments/models/blas.py` says why), with a set of functions for each kind of registers.

Whatever is wrong leaves MLX's own, which computes the same, and a reason in words. `MLX_STACK_BLAS=stock` in the
environment asks for that too.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    *("BINARY", "SHA256", "Kernels", "NotHere", "StepTask", "Task", "TaskLayer"),
    *("check_place", "find_features", "load_kernels"),
]

BINARY = Path(__file__).with_name("kernels_x86_64.so")
SHA256 = "50e02ec25d6ab4d874d1cc1e47aca7b8311ac957185f85de428514095a91fe97"
# By what the processor must have: how the functions end, and how many floats a register has.
_KINDS = ((frozenset({"avx512f", "fma"}), "avx512", 16), (frozenset({"avx2", "fma"}), "avx2", 8))


class NotHere(Exception):
    """Why MLX's own stays."""


class Task(ctypes.Structure):
    """`struct task` of attention.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("queries", "keys", "values", "mask", "made")),
        *((name, ctypes.c_long) for name in ("rows", "keys_count", "size", "query_head_stride", "query_stride")),
        *((name, ctypes.c_long) for name in ("key_stride", "value_stride", "mask_stride")),
        *((name, ctypes.c_long) for name in ("made_head_stride", "made_stride", "causal")),
        ("scale", ctypes.c_float),
    )


class TaskLayer(ctypes.Structure):
    """`struct layer` of step.h."""

    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            *("first_norm", "query", "query_bias", "key", "key_bias", "value", "value_bias", "output"),
            *("query_norm", "key_norm", "second_norm", "gate", "up", "down", "keys", "values"),
        )
    )


class StepTask(ctypes.Structure):
    """`struct step` of step.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("multiply", "share", "layers", "embedding", "norm", "head")),
        *((name, ctypes.c_void_p) for name in ("cosines", "sines", "tokens", "held", "wanted", "work", "made")),
        *((name, ctypes.c_long) for name in ("layers_count", "sequences", "count", "places", "hidden")),
        *((name, ctypes.c_long) for name in ("heads", "groups", "size", "inner", "vocabulary", "wanted_count")),
        *((name, ctypes.c_float) for name in ("epsilon", "scale")),
    )


@dataclass(frozen=True, slots=True)
class Kernels:
    """The functions for one kind of registers, which hold so many `floats`. Each takes what is to be done, and all but
    `step` from where to where."""

    floats: int
    attend: Any
    gate: Any
    step: Any


def check_place() -> None:
    """Raise `NotHere` where MLX is to compute as it comes: on a GPU, or because somebody asks for it."""
    import mlx.core as mx

    if os.environ.get("MLX_STACK_BLAS") == "stock":
        raise NotHere("MLX_STACK_BLAS=stock asks for it")
    if mx.default_device() != mx.Device(mx.cpu):
        raise NotHere("MLX has a GPU here")


def find_features() -> frozenset[str]:
    """Return what the processor has, as Linux calls it. Raises `NotHere` where that can't be told."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise NotHere(f"there is none for {sys.platform} on {platform.machine()}")
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise NotHere(f"what the processor has can't be read: {error}") from error
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def load_kernels(has: frozenset[str]) -> list[Kernels]:
    """Load the binary; return what of it runs on a processor that has these, the fastest first. Raises `NotHere`."""
    kinds = [(name, floats) for needs, name, floats in _KINDS if needs <= has]
    if not kinds:
        raise NotHere("the processor has neither AVX2 nor AVX-512")
    try:
        seen = hashlib.sha256(BINARY.read_bytes()).hexdigest()
        if seen != SHA256:
            raise NotHere(f"the sha256 of {BINARY.name} is {seen}, not the pinned {SHA256}")
        library = ctypes.CDLL(str(BINARY))
    except OSError as error:
        raise NotHere(str(error)) from error
    task, numbers, place = ctypes.POINTER(Task), ctypes.c_void_p, ctypes.c_long
    return [
        Kernels(
            floats,
            attend=_declare(library[f"attend_with_{name}"], task, place, place),
            gate=_declare(library[f"gate_with_{name}"], numbers, numbers, numbers, place, place),
            step=_declare(library[f"step_with_{name}"], ctypes.POINTER(StepTask)),
        )
        for name, floats in kinds
    ]


def _declare(function: Any, *arguments: Any) -> Any:
    function.restype, function.argtypes = None, arguments
    return function
