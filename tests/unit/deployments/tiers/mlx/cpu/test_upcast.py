"""Weights of 16 bits are held in 32 on a processor, where nobody has packed them."""

from __future__ import annotations

import pytest

from deployments.tiers.mlx.cpu.step import build_step
from deployments.tiers.mlx.cpu.upcast import upcast
from tests.support.kernels import only_here
from tests.support.random_models import build_model


@pytest.mark.model
@only_here
def test_a_model_of_short_floats_gets_its_step() -> None:
    """Law: what is upcast is computed as any model in float32: in one call."""
    import mlx.core as mx

    model = build_model("normed")
    model.set_dtype(mx.bfloat16)
    upcast(model)

    assert build_step(model) is not None


def test_quantized_weights_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    """Law: nothing is unpacked that its maker has packed, and the log says that it is slow here."""
    import mlx.core as mx
    import mlx.nn as nn

    model = build_model("biases")
    nn.quantize(model.model.layers[1].self_attn, group_size=32)
    model.set_dtype(mx.bfloat16)
    upcast(model)

    assert model.model.norm.weight.dtype == mx.bfloat16
    assert "quantized weights are slow" in caplog.text
