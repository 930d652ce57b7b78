"""What a tier does on a Mac's GPU and nowhere else: fused attention, wired memory, a lost GPU. Engine thread only.

MLX takes its fused kernels for heads of 192 and 256 only where told to (github.com/ml-explore/mlx/pull/3293). macOS
takes unwired GPU memory back after about a second without work (github.com/ggml-org/llama.cpp/pull/17766), so each tier
wires its part of the working set. After a command buffer that timed out, Metal ignores all further work of the process.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable
from typing import Any

from deployments.memory.room import FORCED_SIZES, SCORES_BYTES_MAX

_LOG = logging.getLogger(__name__)

_FLOAT_BYTES = 4
_DECODING_MAX = 8  # queries up to which MLX has another kernel
_GRACE_S = 0.5
_EXIT_CODE = 70
# Metal's own words for MTLCommandBufferError (tests/mac/assumptions.py).
_IGNORED = re.compile(
    r"SubmissionsIgnored|submissions? (?:was |were |is |are )?ignored|Ignored \(for causing", re.IGNORECASE
)
_ERROR_CHARS_MAX = 2000


class _FusedAttention:
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


def install_fused() -> None:
    """Wrap MLX's attention where it computes on Metal and has the kernels. Again, it does nothing."""
    import mlx.core as mx

    plain = mx.fast.scaled_dot_product_attention
    if not mx.metal.is_available() or isinstance(plain, _FusedAttention):
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
    mx.fast.scaled_dot_product_attention = _FusedAttention(plain)


def is_forced() -> bool:
    """Return whether the wrapper is in its place."""
    import mlx.core as mx

    return isinstance(mx.fast.scaled_dot_product_attention, _FusedAttention)


def wire(part_bytes: int) -> int:
    """Wire this process's memory up to so many bytes; return how many were wired. 0 without Metal, and where macOS
    refuses (before macOS 15 it can't)."""
    import mlx.core as mx

    if not mx.metal.is_available():
        return 0
    most_bytes = int(mx.device_info().get("max_recommended_working_set_size", 0))
    wired_bytes = max(0, min(part_bytes, most_bytes))
    try:
        mx.set_wired_limit(wired_bytes)
    except (ValueError, RuntimeError) as error:
        _LOG.warning("memory isn't wired: %s", error)
        return 0
    return wired_bytes


def is_gpu_lost(error: BaseException) -> bool:
    """Return whether the GPU ignores all that this process submits."""
    return _IGNORED.search(str(error)[:_ERROR_CHARS_MAX]) is not None


def end_process() -> None:
    """End this process soon, without waiting for anything in it; returns at once."""
    clock = threading.Timer(_GRACE_S, os._exit, (_EXIT_CODE,))
    clock.daemon = True
    clock.start()
