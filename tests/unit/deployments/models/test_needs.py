"""What a replica needs in bytes: its weights, its cache, or a number of one's own."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.config.tier_config import MlxTierConfig
from deployments.models.catalog import weight_bytes_of
from deployments.models.needs import _KV_TOKENS, plan_of, replica_bytes
from deployments.models.sources import CODER_SMALL
from tests.support.small_config import config_of

SHAPE = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "hidden_size": 32}


def model(folder: Path, **shape: object) -> str:
    """An mlx-lm model folder of 1000 bytes of weights and this shape, as a source."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SHAPE, **shape}))
    (folder / "model.safetensors").write_bytes(b"\0" * 1000)
    return f"path:{folder}"


GEMMA_3_4B = {
    "model_type": "gemma3",
    "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024},
    "quantization": {"bits": 4, "group_size": 64},
}
DBRX = {
    "model_type": "dbrx",
    "vocab_size": 100352,
    "d_model": 6144,
    "n_layers": 40,
    "n_heads": 48,
    "max_seq_len": 32768,
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
    "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000},
}


@pytest.mark.parametrize(
    ("config", "cache_bytes"),
    [(GEMMA_3_4B, (5 * _KV_TOKENS + 29 * 1024) * 2 * 4 * 256 * 2), (DBRX, 40 * _KV_TOKENS * 2 * 8 * 128 * 2)],
)
def test_mlx_lm_measures_what_it_can_build(tmp_path, monkeypatch, config, cache_bytes):
    """Law: what the configuration leaves out, as Gemma 3's leave out the heads, is as mlx-lm has it; 132 billion
    weights are no obstacle; and a figure is measured once for all processes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    (tmp_path / "m" / "model.safetensors").write_bytes(b"\0" * 1000)
    tier = MlxTierConfig(kind="mlx", model=f"path:{tmp_path / 'm'}")
    assert replica_bytes("t", tier) == 1000 + (400 << 20) + cache_bytes

    [kept] = tmp_path.rglob("cache-sizes/*")
    kept.write_text("7")
    assert replica_bytes("t", tier) == 1000 + (400 << 20) + 7


@pytest.mark.parametrize("shape", [{}, {"model_type": "unheard_of"}])
def test_a_cache_that_is_not_counted_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture, shape: dict) -> None:
    """Law: of a model that mlx-lm doesn't know only the weights are planned, and the log says so."""
    source = model(tmp_path / "m", **shape)

    assert replica_bytes("t", MlxTierConfig(kind="mlx", model=source)) == 1000 + (400 << 20)
    assert "isn't counted" in caplog.text


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
    needs = {need.name: need for need in plan.needs}
    assert needs["fast"].priority > needs["standard"].priority > needs["m"].priority
    assert (needs["premium"].local, needs["fast"].local) == (False, True)
    assert needs["fast"].replica_bytes == 0
