"""Attention with heads of 192 and 256 on Metal, without its scores in memory.

MLX has fused kernels for these sizes since 0.32.4, but takes them only where it is told to (`force_fused`): they are
slower than the unfused way, whose scores grow with the context. So `install` puts a wrapper in the place of
`mx.fast.scaled_dot_product_attention`, which asks for them where the scores would take more than `SCORES_BYTES_MAX`
(`memory/prefill_scores.py`), as behind 16,384 tokens in a chunk of 512 of Qwen3.6-35B-A3B.

    few scores, other sizes, eight tokens or fewer (decoding)    as MLX chooses
    more                                                          force_fused

Engine thread only. Not run here: no Metal. Measured by others at a head of 256: 8.6 GB a layer unfused behind 32,768
tokens, and the same prompt through (github.com/ml-explore/mlx/pull/3293, /issues/3658, /pull/4185).

Invariants:
    - An MLX without such kernels, or one whose trial fails, stays as it is, and the scores are counted instead.
    - A call that the kernels refuse is computed as MLX chooses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from deployments.memory.prefill_scores import FORCED_SIZES, SCORES_BYTES_MAX

__all__ = ["FusedAttention", "install", "is_forced"]

_LOG = logging.getLogger(__name__)

_FLOAT_BYTES = 4
_DECODING_MAX = 8  # queries up to which MLX has another kernel


class FusedAttention:
    """Answers as `mx.fast.scaled_dot_product_attention`, which is `plain`."""

    def __init__(self, plain: Callable[..., Any], bytes_max: int = SCORES_BYTES_MAX) -> None:
        self._plain, self._bytes_max = plain, bytes_max

    def __call__(self, q: Any, k: Any, v: Any, **more: Any) -> Any:
        """Return (batch, heads, queries, size), as MLX does."""
        batch, heads, queries, size = q.shape
        scores_bytes = _FLOAT_BYTES * batch * heads * queries * k.shape[2]
        wide = size in FORCED_SIZES and v.shape[3] == size and queries > _DECODING_MAX
        if wide and scores_bytes > self._bytes_max:
            try:
                return self._plain(q, k, v, **more, force_fused=True)
            except (ValueError, RuntimeError) as error:  # a mask or a type that these kernels don't take
                _LOG.warning("attention holds %d MB of scores: %s", scores_bytes // 1_000_000, error)
        return self._plain(q, k, v, **more)


def install() -> None:
    """Put the wrapper in its place, where this MLX computes on Metal and has the kernels. Again, it does nothing."""
    import mlx.core as mx

    plain = mx.fast.scaled_dot_product_attention
    if not mx.metal.is_available() or isinstance(plain, FusedAttention):
        return
    try:
        for size in FORCED_SIZES:
            q = mx.zeros((1, 1, 2 * _DECODING_MAX, size), mx.bfloat16)
            mask = mx.ones((q.shape[2], q.shape[2]), mx.bool_)
            for asked in ("causal", mask):
                mx.eval(plain(q, q, q, scale=1.0, mask=asked, force_fused=True))
    except (TypeError, ValueError, RuntimeError) as error:
        _LOG.info("attention of wide heads keeps its scores in memory: %s", error)
        return
    mx.fast.scaled_dot_product_attention = FusedAttention(plain)


def is_forced() -> bool:
    """Tell whether the wrapper is in its place."""
    import mlx.core as mx

    return isinstance(mx.fast.scaled_dot_product_attention, FusedAttention)
