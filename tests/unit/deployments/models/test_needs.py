"""What a replica needs in bytes: its weights, its cache, or a number of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.config_tiers import MlxTierConfig
from deployments.models.catalog import weight_bytes_of
from deployments.models.needs import KV_TOKENS, plan_of, replica_bytes
from deployments.models.sources import CODER_SMALL
from tests.support.small_config import config_of

SHAPE = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "hidden_size": 32}


def model(folder: Path, **shape: object) -> str:
    """An mlx-lm model folder of 1000 bytes of weights and this shape, as a source."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SHAPE, **shape}))
    (folder / "model.safetensors").write_bytes(b"\0" * 1000)
    return f"path:{folder}"


def test_weights_and_cache_are_counted(tmp_path: Path):
    """Weights, what stands beside them, and KV_TOKENS tokens of cache by the model's own shape."""

    def of(**shape: object) -> int:
        return replica_bytes("t", MlxTierConfig(kind="mlx", model=model(tmp_path / "m", **shape))) or 0

    token_bytes = 2 * 2 * 1 * 8  # keys and values, layers, heads of them, their width
    without_cache = of() - KV_TOKENS * token_bytes * 2
    assert without_cache == 1000 + (400 << 20)
    assert of(torch_dtype="float32") == without_cache + KV_TOKENS * token_bytes * 4
    assert of(max_position_embeddings=10) == without_cache + 10 * token_bytes * 2
    assert of(num_hidden_layers=None) == without_cache


@given(
    st.dictionaries(
        st.sampled_from([*SHAPE, "head_dim", "max_position_embeddings", "text_config", "torch_dtype", "quantization"]),
        st.none() | st.booleans() | st.integers(-5, 10**30) | st.floats() | st.text(max_size=3) | st.just([1]),
    )
)
def test_a_shape_of_nonsense_costs_nothing(tmp_path_factory: pytest.TempPathFactory, shape: dict[str, object]):
    """Whatever stands in a model's configuration, its needs are a number: a tier that can't load stops no server."""
    source = model(tmp_path_factory.mktemp("m"), **shape)
    assert (replica_bytes("t", MlxTierConfig(kind="mlx", model=source)) or 0) > 0


def test_a_number_of_ones_own_counts(tmp_path: Path):
    """`replica_bytes` replaces the estimate; a model of which nothing is known has none."""
    source = model(tmp_path / "m")
    assert replica_bytes("t", MlxTierConfig(kind="mlx", model=source, replica_bytes=5)) == 5
    assert replica_bytes("t", MlxTierConfig(kind="mlx", model=f"path:{tmp_path / 'nowhere'}")) is None
    assert weight_bytes_of(CODER_SMALL) == 2_521_000_000
    assert weight_bytes_of("hf:somebody/else@main") is None


def test_the_plan_of_a_configuration():
    """Tiers that come first in the chain grow first; a hosted tier runs elsewhere; scripted ones take nothing."""
    plan = plan_of(config_of())
    assert plan is not None
    needs = {need.name: need for need in plan.needs}
    assert needs["fast"].priority > needs["standard"].priority > needs["m"].priority
    assert (needs["premium"].local, needs["fast"].local) == (False, True)
    assert needs["fast"].replica_bytes == 0
