"""In which precision a model's weights are held: as they are on disk; on a CPU, floats of 16 bits as such of 32.

MLX computes 16-bit floats on a processor one by one: 20 times slower at reading a prompt
(docs/decisions/063-precision-on-a-cpu.md). So they take twice the memory of their files there, and so do keys and
values. Quantized weights stay as they are: they would take seven times as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deployments.memory.sensors.computing import Computing, find_computing

_SHORT = ("bfloat16", "float16")


def find_stored_dtype(config: Mapping[str, Any]) -> str | None:
    """Find the type of the weights on disk, by the model's config; None where it doesn't say."""
    inner = config.get("text_config")
    inner = inner if isinstance(inner, Mapping) else {}
    dtype = config.get("torch_dtype") or config.get("dtype") or inner.get("torch_dtype") or inner.get("dtype")
    return dtype if isinstance(dtype, str) else None


def find_held_dtype(config: Mapping[str, Any]) -> str | None:
    """Find the type in which they are held, and keys and values with them."""
    stored = find_stored_dtype(config)
    quantized = any(isinstance(config.get(name), Mapping) for name in ("quantization", "quantization_config"))
    return "float32" if stored in _SHORT and not quantized and find_computing() is Computing.CPU else stored


def grow_to_held(stored_bytes: int, config: Mapping[str, Any]) -> int:
    """Return how many bytes weights of so many on disk take in memory."""
    return stored_bytes * (1 if find_held_dtype(config) == find_stored_dtype(config) else 2)
