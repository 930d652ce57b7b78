"""What `model: auto` means on every machine."""

import importlib.util
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.models.catalog import MODELS, ROLES, ROWS, _Entry, choose, weight_bytes_of
from deployments.models.sources import CODER_LARGE, CODER_SMALL, DEFAULT_SOURCE, parse_source
from deployments.tiers.mlx.cache_size import build_unloaded, measure_layout

GIB = 1 << 30
MEMORY = st.integers(1 * GIB, 1024 * GIB)
CPU = [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "x86_64")]


class TestChoose:
    @given(st.sampled_from([*ROLES, "mine"]), MEMORY)
    def test_every_machine_gets_a_source_and_a_reason(self, role: str, memory_bytes: int) -> None:
        """Law: for every role and size the choice is a valid source with a reason and a size."""
        for platform, machine in (("darwin", "arm64"), *CPU):
            choice = choose(role, platform, machine, memory_bytes)
            assert parse_source(choice.source).text == choice.source
            assert choice.why
            assert weight_bytes_of(choice.source)

    @pytest.mark.parametrize(("platform", "machine"), CPU)
    def test_three_roles_are_three_models(self, platform: str, machine: str) -> None:
        """Law: without Metal each role has a model of its own, and whatever else a tier is called, it is the small one.
        A server that is started fetches that, 98 MB, and nothing else. The larger two hold 32k tokens, as is known
        before they run."""
        choices = [choose(role, platform, machine, 64 * GIB) for role in (*ROLES, "mine")]
        assert [choice.source for choice in choices] == [DEFAULT_SOURCE, CODER_SMALL, CODER_LARGE, DEFAULT_SOURCE]
        assert [choice.fetch for choice in choices] == ["load", "background", "pull", "load"]
        assert [choice.context_tokens for choice in choices[1:3]] == [32_768] * 2
        pinned = parse_source(DEFAULT_SOURCE)
        assert (len(pinned.sha256 or ""), pinned.size_bytes) == (64, 98_362_432)

    @given(MEMORY)
    def test_a_model_that_does_not_fit_says_so(self, memory_bytes: int) -> None:
        """Law: a choice is either fit for the machine or says what machine it is for: the 0.5B from 6 GiB on, the 1.5B
        from 14; weights and what the tiers before it need leave the system a part."""
        for role, floor_gib in (("fast", 0), ("standard", 6), ("longctx", 14)):
            choice = choose(role, "linux", "x86_64", memory_bytes)
            assert choice.fetch != "load" or choice.source == DEFAULT_SOURCE
            assert (choice.unfit == "") is (memory_bytes >= floor_gib * GIB)
            assert not choice.unfit or f"of {floor_gib} GiB of memory and more" in choice.unfit

    @given(MEMORY)
    def test_a_mac_fetches_little_before_its_first_answer(self, memory_bytes: int) -> None:
        """Law: on Apple silicon, too, the first model comes in front, at most 5 GB; the second behind the server, the
        third when a person asks for it. One that this machine has no room for says from which one on."""
        choices = [choose(role, "darwin", "arm64", memory_bytes) for role in (*ROLES, "mine")]
        assert [choice.fetch for choice in choices] == ["load", "background", "pull", "load"]
        assert (weight_bytes_of(choices[0].source) or 0) <= 5e9
        assert choices[3] == choices[0]
        for choice, floor_gib in zip(choices, (0, 16, 48), strict=False):
            assert (choice.unfit == "") is (memory_bytes >= floor_gib * GIB)
            assert not choice.unfit or f"on machines of {floor_gib} GiB" in choice.unfit

    def test_a_branch_is_said_not_to_be_pinned(self) -> None:
        """Law: a choice that follows a moving branch says so, and one that doesn't says that too."""
        assert "not pinned" in choose("longctx", "darwin", "arm64", 192 * GIB).why
        assert choose("fast", "darwin", "arm64", 32 * GIB).why.endswith("; pinned")


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
def test_a_row_is_of_different_models(floor_gib: int, models: tuple[_Entry | None, ...]) -> None:
    """Law: no model is held twice because two tiers name it; the first answers without long thought."""
    there = [model for model in models if model]
    assert len({model.source for model in there}) == len(there)
    assert not there[0].thinks


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.repository)
def test_an_entry_says_what_the_model_is(model: _Entry) -> None:
    """Law: the source is valid and pinned to a commit or the main branch, the calls are in a form that mlx-lm
    reads."""
    source = parse_source(model.source)
    assert source.kind == "hf"
    assert source.revision == "main" or re.fullmatch(r"[0-9a-f]{40}", source.revision or "")
    pytest.importorskip("mlx_lm")
    assert importlib.util.find_spec(f"mlx_lm.tool_parsers.{model.tools}") is not None


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


def config_of(model: _Entry) -> dict[str, Any]:
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
def test_the_bytes_of_a_token_are_those_that_mlx_lm_keeps(model: _Entry) -> None:
    """Law: what an entry says of its cache is what mlx-lm's class of that shape keeps."""
    layers = measure_layout(build_unloaded(config_of(model))).layers
    assert model.heads == SHAPES[model.repository][1][2]
    assert model.token_bytes == sum(layer.token_bytes for layer in layers)
    assert model.state_bytes == sum(layer.fixed_bytes for layer in layers)
