"""What a cache takes, measured without a model's weights, against caches that hold tokens."""

import importlib
import pkgutil

import mlx.core as mx
import mlx_lm.models
import pytest

from deployments.tiers.mlx.cache_size import build_unloaded, find_context, measure_layout
from tests.support.model_configs import CONFIGS, NOT_COMPUTED, build_config, compare

# One of each kind of cache, and of what is particular: defaults for missing fields, experts chosen by number. The zoo
# has all of them.
EACH = (
    "dbrx", "deepseek_v3", "deepseek_v32", "deepseek_v41", "falcon_h1", "gemma3 unnamed", "gemma4", "gpt_oss", "lfm2",
    "llama", "llama4", "nemotron_h", "qwen3_5_moe", "recurrent_gemma",
)  # fmt: skip


@pytest.mark.parametrize("name", EACH)
def test_each_architecture_takes_what_was_counted(name: str) -> None:
    """Law: what is counted before a model is loaded is what its caches take once they hold so many tokens."""
    needs, real = compare(name)

    assert needs == pytest.approx(real, rel=0.1)


@pytest.mark.parametrize("name", ["falcon_h1", "mamba2", "qwen3_5", "recurrent_gemma"])
def test_each_layer_has_its_own_precision(name: str) -> None:
    """Law: it holds for weights of 16 bits too, beside which recurrent layers may keep 32."""
    needs, real = compare(name, "bfloat16")

    assert needs == pytest.approx(real, rel=0.1)
    assert needs < compare(name)[0]


def test_all_architectures_are_compared() -> None:
    """Law: each architecture of the installed mlx-lm is in the table, or a reason why it can't be computed here."""
    names = {module.name for module in pkgutil.iter_modules(mlx_lm.models.__path__)} - NOT_COMPUTED.keys()
    models = {name for name in names if hasattr(importlib.import_module(f"mlx_lm.models.{name}"), "ModelArgs")}

    assert models == {name.partition(" ")[0] for name in CONFIGS}


def test_no_weight_is_computed() -> None:
    """Law: the size of a model costs no memory: 600 GB of experts are measured in less than a megabyte."""
    mx.clear_cache()
    before_bytes = mx.get_active_memory()
    mx.reset_peak_memory()
    config = build_config("deepseek_v3", "bfloat16")
    config |= {"n_routed_experts": 256, "hidden_size": 7168, "moe_intermediate_size": 2048, "num_hidden_layers": 61}

    layout = measure_layout(build_unloaded(config))

    assert layout.sequence_bytes(256) == 256 * 61 * (16 + 8) * 2  # the latent, and the keys' rotated part
    assert mx.get_peak_memory() - before_bytes < 1 << 20


def test_an_unnamed_context_has_the_default_of_mlx_lm() -> None:
    """Law: where the configuration leaves the context length out, it is mlx-lm's own default for the architecture."""
    assert find_context(build_unloaded(build_config("gemma3 unnamed", "float32"))) == 32768
    assert find_context(build_unloaded(build_config("gemma3", "float32"))) == 4096
    assert find_context(build_unloaded(build_config("mamba", "float32"))) is None
