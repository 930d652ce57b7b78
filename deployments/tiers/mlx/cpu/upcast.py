"""Hold 16-bit weights in float32 on a CPU: `deployments.models.precision` says why, and what it costs."""

from __future__ import annotations

import logging
from typing import Any

from deployments.tiers.lazy_mlx import mx

_LOG = logging.getLogger(__name__)


def upcast(model: Any) -> None:
    """Hold a model's weights in float32, with its adapter in them, but for quantized ones: they stay, and a warning
    says that they are slow. It goes a layer at a time, so that memory is freed on the way."""
    from mlx.utils import tree_unflatten

    if any(hasattr(module, "bits") for module in model.modules()):
        _LOG.warning("quantized weights are slow on a processor: the same model in bfloat16 or float32 answers sooner")
        return
    for module in model.modules():
        if not module.children():
            module.set_dtype(mx.float32)
            mx.eval(module.parameters())
    model.set_dtype(mx.float32)  # what a module with layers in it has beside them
    mx.eval(model.parameters())
    fused = [(name, module.fuse()) for name, module in model.named_modules() if hasattr(module, "fuse")]
    model.update_modules(tree_unflatten(fused))
