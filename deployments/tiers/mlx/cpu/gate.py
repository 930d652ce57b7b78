"""The gate of a layer on the CPU of a Linux machine, silu(x) times another number, in the place of mlx-lm's: `install`
puts it there.

mlx-lm's models take it from `mlx_lm.models.activations`, where MLX's CPU build needs 16 ns for a number, on one core:
a fifth of a prefill of Qwen2.5-Coder-0.5B. Here it is one with the processor's wide registers (`gate_lanes.h`), and
threads share it out.

MLX computes late, and what is gated here must be there: so a step of one token stays MLX's, which is prepared while the
one before it is computed.

Engine thread only. What must never happen: a result that differs from MLX's by more than rounding; numbers that are
read while MLX still computes them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from deployments.tiers.mlx.cpu.binary import Kernels, NotHere, check_place, find_features, load_kernels
from deployments.tiers.mlx.cpu.sharing import Threads

__all__ = ["NUMBERS_MIN", "Gate", "install"]

NUMBERS_MIN = 32_768  # below it the detour costs more than it saves
_PIECE_NUMBERS = 65_536  # what a thread takes at a time


class Gate:
    """Answers as `mlx_lm.models.activations.swiglu`, which is `plain`."""

    def __init__(
        self, kernels: Kernels, threads: Threads, plain: Callable[..., Any], numbers_min: int = NUMBERS_MIN
    ) -> None:
        self._kernels, self._threads, self._plain, self._numbers_min = kernels, threads, plain, numbers_min

    def __call__(self, gate: Any, x: Any) -> Any:
        """Return silu(gate) * x, of their shape."""
        import mlx.core as mx

        if gate.size < self._numbers_min or gate.shape != x.shape or {gate.dtype, x.dtype} != {mx.float32}:
            return self._plain(gate, x)
        mx.eval(gate, x)
        first, second = (np.ascontiguousarray(np.asarray(one)) for one in (gate, x))
        made = np.empty(gate.shape, np.float32)
        addresses = (first.ctypes.data, second.ctypes.data, made.ctypes.data)
        self._threads.run(
            [
                partial(self._kernels.gate, *addresses, at, min(at + _PIECE_NUMBERS, made.size))
                for at in range(0, made.size, _PIECE_NUMBERS)
            ]
        )
        return mx.array(made)


def install(threads: int) -> None:
    """Put ours in the place of mlx-lm's, in the models that are loaded and in those that will be. Again, it does
    nothing.

    Raises `NotHere` with the reason where mlx-lm's stays.
    """
    from mlx_lm.models import activations

    plain = activations.swiglu
    if isinstance(plain, Gate):
        return
    check_place()
    made = Gate(load_kernels(find_features())[0], Threads(threads), plain)
    _check(made)
    activations.swiglu = made
    for name, module in list(sys.modules.items()):
        if name.startswith("mlx_lm.models.") and getattr(module, "swiglu", None) is plain:
            module.swiglu = made  # type: ignore[attr-defined]


def _check(gate: Gate) -> None:
    """Gate some numbers whose results are known."""
    import mlx.core as mx

    size = gate._numbers_min + 1
    made = np.asarray(gate(mx.zeros((size,)) + np.log(3), mx.arange(size, dtype=mx.float32)))
    if not np.allclose(made, 0.75 * np.log(3) * np.arange(size), rtol=1e-5):
        raise NotHere("it computes wrong results here")
