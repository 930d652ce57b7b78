"""The table of models for Apple silicon: what holds for every row, and what each entry must say."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest

from deployments.models.mac_models import MODELS, ROWS, MacModel
from deployments.models.sources import parse_source
from deployments.tiers.mlx.cache_size import build_unloaded, measure_layout


def test_more_memory_never_means_a_smaller_model() -> None:
    """Law: in each column the weights grow with the memory, over Macs of 8 to 512 GB, and none goes missing again."""
    for column in range(3):
        sizes = [
            models[column].weight_mb if models[column] else 0 for _, models in sorted(ROWS, key=lambda row: row[0])
        ]
        assert sizes == sorted(sizes) or column == 2  # the longest context isn't the largest model
        assert sizes.index(next(size for size in sizes if size)) == sizes.count(0)
    assert [floor_gib for floor_gib, _ in ROWS] == sorted((floor_gib for floor_gib, _ in ROWS), reverse=True)


@pytest.mark.parametrize(("floor_gib", "models"), ROWS)
def test_a_row_is_of_different_models(floor_gib: int, models: tuple[MacModel | None, ...]) -> None:
    """Law: no model is held twice because two tiers name it; the first answers without long thought; the last one
    holds at least as much as every other."""
    there = [model for model in models if model]
    assert len({model.source for model in there}) == len(there)
    assert not there[0].thinks
    assert there[-1].context_tokens == max(model.context_tokens for model in there)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.repository)
def test_an_entry_says_what_the_model_is(model: MacModel) -> None:
    """Law: the source is valid and pinned to a commit or the main branch, the calls are in a form that mlx-lm reads,
    and the licence is an open one."""
    source = parse_source(model.source)
    assert source.kind == "hf"
    assert source.revision == "main" or re.fullmatch(r"[0-9a-f]{40}", source.revision or "")
    pytest.importorskip("mlx_lm")
    assert importlib.util.find_spec(f"mlx_lm.tool_parsers.{model.tools}") is not None
    assert model.cache in ("plain", "hybrid")
    assert model.license in ("Apache-2.0", "MIT")


# The shapes in the models' published config.json: hidden size, layers, heads, heads of keys and values, and of the
# recurrent layers those of values.
SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "Qwen3.5-2B-4bit": ("qwen3_5", (2048, 24, 8, 2, 16)),
    "Qwen3-4B-Instruct-2507-4bit": ("qwen3", (2560, 36, 32, 8)),
    "Qwen3.5-9B-MLX-4bit": ("qwen3_5", (4096, 32, 16, 4, 32)),
    "Qwen3-Coder-30B-A3B-Instruct-4bit": ("qwen3_moe", (2048, 48, 32, 4)),
    "Qwen3.6-35B-A3B-4bit": ("qwen3_5_moe", (2048, 40, 16, 2, 32)),
    "Qwen3-Coder-Next-4bit": ("qwen3_next", (2048, 48, 16, 2, 32)),
    "Qwen3.5-122B-A10B-4bit": ("qwen3_5_moe", (3072, 48, 32, 2, 64)),
    "Qwen3-235B-A22B-Instruct-2507-4bit": ("qwen3_moe", (4096, 94, 64, 4)),
}


def config_of(model: MacModel) -> dict[str, Any]:
    """A config.json of that shape, with few and small experts: no weight is ever computed."""
    kind, (hidden, layers, heads, groups, *values) = SHAPES[model.repository]
    text: dict[str, Any] = {
        "model_type": kind, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": groups, "head_dim": model.head_dim, "intermediate_size": 512, "vocab_size": 512,
        "rms_norm_eps": 1e-6, "max_position_embeddings": 4096, "rope_theta": 1e6, "tie_word_embeddings": True,
        "num_experts": 4, "num_experts_per_tok": 2, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64, "norm_topk_prob": True,
        "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_num_key_heads": 16, "partial_rotary_factor": 0.25,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
    }  # fmt: skip
    text |= {"linear_num_value_heads": values[0]} if values else {}
    nested = {"text_config": text} if kind.startswith("qwen3_5") else text
    return {**nested, "model_type": kind, "dtype": "bfloat16", "quantization": {"bits": 4, "group_size": 64}}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.repository)
def test_the_bytes_of_a_token_are_those_that_mlx_lm_keeps(model: MacModel) -> None:
    """Law: what an entry says of its cache is what mlx-lm's class of that shape keeps."""
    layers = measure_layout(build_unloaded(config_of(model))).layers
    assert model.heads == SHAPES[model.repository][1][2]
    assert model.token_bytes == sum(layer.token_bytes for layer in layers)
    assert model.state_bytes == sum(layer.fixed_bytes for layer in layers)
    assert (model.cache == "hybrid") is (model.state_bytes > 0)
