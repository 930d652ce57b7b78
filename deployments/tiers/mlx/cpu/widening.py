"""Weights of 16 bits as such of 32, on a processor: `deployments.models.precision` says why, and what it takes."""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["widen"]

_LOG = logging.getLogger(__name__)


def widen(model: Any) -> None:
    """Hold a model's weights in float32, but for one with quantized weights, which is slow here and said to be so.

    A layer at a time, so that what is let go makes place for what comes.
    """
    import mlx.core as mx

    if any(hasattr(module, "bits") for module in model.modules()):
        _LOG.warning("quantized weights are slow on a processor: the same model in bfloat16 or float32 answers sooner")
        return
    for module in model.modules():
        if not module.children():
            module.set_dtype(mx.float32)
            mx.eval(module.parameters())
    model.set_dtype(mx.float32)  # what a module with layers in it has beside them
    mx.eval(model.parameters())
