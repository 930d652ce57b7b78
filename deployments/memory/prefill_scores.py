"""What attention's scores take while a prompt is read, where no fused kernel spares them.

On a CPU none is fused. On CUDA heads of at most 128, a multiple of 8, are, in 16 bits (cuDNN, from Ampere on).

Metal's default prefill is fused for a few sizes of a head only. For the others each layer in turn holds a number of 32
bits for each head, token of the chunk and token of the context: 3.3 GB for Qwen3.6-35B-A3B behind 100,000 tokens. The
kernels for 192 and 256 are there since MLX 0.32.4, slower and to be asked for: the engine asks where the scores would
take more than `SCORES_BYTES_MAX` (`tiers/mlx/metal.py`), so that is what is set aside.
"""

from __future__ import annotations

from deployments.memory.sensors.computing import Computing

_FUSED_SIZES = frozenset({64, 80, 128})
_CUDNN_SIZE_MAX = 128
FORCED_SIZES = frozenset({192, 256})
SCORES_BYTES_MAX = 512 << 20
_FLOAT_BYTES = 4


def estimate_scores_bytes(
    heads: int, head_dim: int, step_tokens: int, computing: Computing, *, forced: bool
) -> tuple[int, int]:
    """Estimate what the scores of one step take: bytes in any case, and bytes for each token of the context. `forced`:
    Metal's fused kernels that must be asked for are used."""
    if computing is Computing.CPU:  # before and after the softmax
        return 0, 2 * _FLOAT_BYTES * heads * step_tokens
    if computing is Computing.CUDA:
        fused = head_dim <= _CUDNN_SIZE_MAX and head_dim % 8 == 0
        return 0, 0 if fused else _FLOAT_BYTES * heads * step_tokens
    if head_dim in _FUSED_SIZES:
        return 0, 0
    if forced and head_dim in FORCED_SIZES:
        return SCORES_BYTES_MAX, 0
    return 0, _FLOAT_BYTES * heads * step_tokens
