"""Attention on the CPU of a Linux machine, in the place of MLX's: `install` puts it there.

MLX's CPU build is compiled for any x86_64 and computes the softmax of all scores on one core: behind a prompt of 1,700
tokens that was a third of a step that reads 24 tokens of Qwen2.5-Coder-0.5B, and most of the prefill of a long prompt.
`attention.h` does it in one pass with the registers that the processor has (AVX2 or AVX-512), and the queries are
shared out among threads here, as many as the matrix library has.

    mx.fast.scaled_dot_product_attention ──▶ Attention ──▶ attention.h       float32 on the CPU, enough scores to pay
                                                     └───▶ MLX's own         everything else

MLX computes late, and what it is to compute here must be there: so `Attention` has its queries and keys computed first.
A step of one token behind a short text goes to MLX as before, since it is prepared while the one before it is computed.

Milliseconds of one layer, 14 heads of 64 on 2 heads of keys, two threads; MLX's own → AVX-512, → AVX2 (2026-11-25,
2 × AMD EPYC, Linux, quiet):

    queries, keys      1, 1700        8, 1700        24, 1700       512, 512        512, 3000
    AVX-512            0.5 → 0.6      5.3 → 0.6      16.0 → 2.3     98.5 → 11.6     624 → 61
    AVX2               0.5 → 1.5      5.3 → 1.4      16.0 → 3.3     98.5 → 11.9     624 → 99

Engine thread only. What must never happen: a result that differs from MLX's by more than rounding; numbers that are
read while MLX still computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from deployments.tiers.mlx.cpu.binary import Kernels, NotHere, Task, check_place, find_features, load_kernels
from deployments.tiers.mlx.cpu.sharing import Threads

__all__ = ["Attention", "install"]

SCORES_MIN = 32_768  # of all heads: below it the detour costs more than it saves
_SIZE_MAX = 256
_PIECE_QUERIES = 384  # what a thread takes at a time
_SPLIT_QUERIES_MIN = 32  # the keys are turned anew for each piece
_STEP_REGISTERS = 4  # the size of a query must be a multiple of so many

Plain = Callable[..., Any]
Array: TypeAlias = "np.ndarray[Any, Any]"


def install(threads: int) -> None:
    """Put ours in the place of `mx.fast.scaled_dot_product_attention`, with so many threads. Again, it does nothing.

    Raises `NotHere` with the reason where MLX's own stays.
    """
    import mlx.core as mx

    if isinstance(mx.fast.scaled_dot_product_attention, Attention):
        return
    check_place()
    made = Attention(load_kernels(find_features()), Threads(threads), mx.fast.scaled_dot_product_attention)
    _check(made)
    mx.fast.scaled_dot_product_attention = made


class Attention:
    """Answers as `mx.fast.scaled_dot_product_attention`, which is `plain`. `kinds`: the fastest first."""

    def __init__(
        self, kinds: list[Kernels], threads: Threads, plain: Callable[..., Any], scores_min: int = SCORES_MIN
    ) -> None:
        self._kinds, self._threads, self._plain, self._scores_min = kinds, threads, plain, scores_min

    def __call__(
        self, q: Any, k: Any, v: Any, *, scale: float, mask: Any = None, sinks: Any = None, **more: Any
    ) -> Any:
        """Return (batch, heads, queries, size), as MLX does."""
        kind = None if sinks is not None or more else self._choose_kind(q, k, v, mask)
        if kind is None:
            return self._plain(q, k, v, scale=scale, mask=mask, sinks=sinks, **more)
        return self._attend(kind, q, k, v, scale, mask)

    def _choose_kind(self, q: Any, k: Any, v: Any, mask: Any) -> Kernels | None:
        """Choose the functions; None where it is MLX's to compute."""
        import mlx.core as mx

        size, keys = q.shape[3], k.shape[2]
        if q.shape[0] * q.shape[1] * q.shape[2] * keys < self._scores_min or size > _SIZE_MAX or v.shape[3] != size:
            return None
        if any(one.dtype != mx.float32 for one in (q, k, v)) or keys < q.shape[2]:
            return None
        if isinstance(mask, mx.array):
            if mask.dtype != mx.bool_ or (mask.ndim > 3 and mask.shape[1] != 1):
                return None
        elif mask not in (None, "causal"):
            return None
        return next((one for one in self._kinds if size % (_STEP_REGISTERS * one.floats) == 0), None)

    def _attend(self, kind: Kernels, q: Any, k: Any, v: Any, scale: float, mask: Any) -> Any:
        import mlx.core as mx

        batch, heads, rows, size = q.shape
        groups = k.shape[1]
        made = np.empty((batch, rows, heads, size), np.float32)
        if isinstance(mask, mx.array):
            mx.eval(q, k, v, mask)
            seen = _view(np.broadcast_to(np.asarray(mask), (batch, 1, rows, k.shape[2])))
        else:
            mx.eval(q, k, v)
            seen = None
        # Held here until all is answered.
        queries, keys, values = _view(np.asarray(q)), _view(np.asarray(k)), _view(np.asarray(v))
        causal = seen is None and mask is not None
        pieces = [
            partial(kind.attend, task, first, last)
            for task in _build_tasks(queries, keys, values, seen, made, scale, causal=causal)
            for first, last in self._cut(batch * groups, heads // groups * rows)
        ]
        self._threads.run(pieces)
        return mx.array(made).transpose(0, 2, 1, 3)

    def _cut(self, groups: int, queries: int) -> Iterator[tuple[int, int]]:
        """Cut the queries of a group, so that each thread has some."""
        pieces = -(-queries // _PIECE_QUERIES)
        if queries >= _SPLIT_QUERIES_MIN:
            pieces = max(pieces, -(-self._threads.count // groups))
        step = -(-queries // pieces)
        return ((first, min(first + step, queries)) for first in range(0, queries, step))


def _view(array: Array) -> Array:
    """Return the array as it is where the numbers of a query stand side by side, else a copy."""
    return array if array.strides[-1] == array.itemsize else np.ascontiguousarray(array)


def _build_tasks(
    q: Array, k: Array, v: Array, mask: Array | None, made: Array, scale: float, *, causal: bool
) -> Iterator[Task]:
    """Build a task for the heads that share keys, in each line of the batch. The arrays must outlive them."""
    share = q.shape[1] // k.shape[1]
    for line in range(q.shape[0]):
        for group in range(k.shape[1]):
            yield Task(
                queries=_find_address(q, line, group * share),
                keys=_find_address(k, line, group),
                values=_find_address(v, line, group),
                mask=None if mask is None else _find_address(mask, line, 0),
                made=made.ctypes.data + line * made.strides[0] + group * share * made.strides[2],
                rows=q.shape[2],
                keys_count=k.shape[2],
                size=q.shape[3],
                query_head_stride=q.strides[1] // 4,
                query_stride=q.strides[2] // 4,
                key_stride=k.strides[2] // 4,
                value_stride=v.strides[2] // 4,
                mask_stride=0 if mask is None else mask.strides[2],
                made_head_stride=made.strides[2] // 4,
                made_stride=made.strides[1] // 4,
                causal=causal,
                scale=scale,
            )


def _find_address(array: Array, line: int, head: int) -> int:
    return array.ctypes.data + line * array.strides[0] + head * array.strides[1]


def _check(attention: Attention) -> None:
    """Compute a small product with a known result: equal scores, so the mean of the values that are seen."""
    import mlx.core as mx

    rows, keys = 3, 700
    for kind in attention._kinds:
        step = _STEP_REGISTERS * kind.floats
        values = mx.broadcast_to(mx.arange(keys, dtype=mx.float32)[:, None], (1, 1, keys, step))
        made = attention._attend(kind, mx.zeros((1, 1, rows, step)), mx.ones((1, 1, keys, step)), values, 1.0, "causal")
        means = [(keys - rows + place) / 2 for place in range(rows)]
        if not np.allclose(np.asarray(made)[0, 0, :, -1], means, rtol=1e-5):
            raise NotHere("it computes wrong results here")
