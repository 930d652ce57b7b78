"""What a cache takes, measured without a model's weights, against caches that hold tokens."""

import importlib
import pkgutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm.models
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import CacheList, ChunkedKVCache, KVCache, RotatingKVCache, make_prompt_cache

from deployments.tiers.mlx.cache_size import MlxCaches, _layout_of, build_unloaded, detach, find_context, measure_layout
from tests.support import tiny_model as tiny
from tests.support.engine_rig import load_folder
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


TOKENS = st.lists(st.integers(4, 190), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return load_folder(folder).model


def read(model: Any, cache: Any, tokens: list[int]) -> list[float]:
    return list(model(mx.array([tokens]), cache=cache)[0, -1].tolist())


@settings(deadline=None, max_examples=25)
@given(TOKENS, TOKENS, TOKENS)
def test_a_shortened_copy_goes_on_as_if_the_rest_had_never_been_read(
    model: Any, kept: list[int], cut: list[int], more: list[int]
) -> None:
    """Law: the copy answers as a cache of the kept tokens alone, and the original as if there were no copy."""
    cache, short, whole = (make_prompt_cache(model) for _ in range(3))
    for one, tokens in ((cache, kept + cut), (short, kept), (whole, kept + cut)):
        read(model, one, tokens)
        detach(one)
    caches = MlxCaches()
    assert caches.is_trimmable(cache)
    copy = caches.copy_shortened(cache, len(cut))

    assert read(model, copy, more) == pytest.approx(read(model, short, more), abs=1e-4)
    assert read(model, cache, more) == pytest.approx(read(model, whole, more), abs=1e-4)


@settings(deadline=None, max_examples=25)
@given(TOKENS, TOKENS, TOKENS)
def test_a_cut_is_its_own_and_no_larger_than_its_tokens(
    model: Any, kept: list[int], rest: list[int], more: list[int]
) -> None:
    """Law: the first tokens of a cache go on as a cache of them alone, and take the memory of so many tokens; a kind of
    cache that holds more than tokens isn't cut."""
    cache, short = (make_prompt_cache(model) for _ in range(2))
    for one, tokens in ((cache, kept + rest), (short, kept)):
        read(model, one, tokens)
        detach(one)
    caches = MlxCaches()
    cut = caches.cut(cache, len(kept))

    assert caches.nbytes(cut) * cache[0].keys.shape[2] == caches.nbytes(cache) * len(kept)
    assert read(model, cut, more) == pytest.approx(read(model, short, more), abs=1e-4)
    assert caches.cut([RotatingKVCache(8)], 1) is None


def test_a_layer_of_several_is_cut_in_each() -> None:
    """Law: lists of plain caches are cut as plain ones are, each part to its own width; with another they aren't."""
    parts = [KVCache(), KVCache()]
    for one, width in zip(parts, (8, 0), strict=True):
        one.update_and_fetch(mx.random.normal((1, 2, 9, 8)), mx.random.normal((1, 2, 9, width)))
    (cut,) = MlxCaches().cut([CacheList(*parts)], 4)

    for one, whole in zip(cut.caches, parts, strict=True):
        assert (one.offset, one.keys.shape[2]) == (4, 4)
        assert mx.array_equal(one.keys, whole.keys[..., :4, :])
        assert one.values.shape == (1, 2, 4, whole.values.shape[3])
    assert MlxCaches().cut([CacheList(parts[0], RotatingKVCache(8))], 1) is None


def test_a_chunk_that_has_moved_on_cant_go_back() -> None:
    """Law: once tokens before the chunk are gone, a shortened copy would lack them."""
    chunk = ChunkedKVCache(4)
    for expected in (True, True, False):
        chunk.maybe_trim_front()
        assert MlxCaches().is_trimmable([chunk]) is expected
        chunk.update_and_fetch(*(mx.random.normal((1, 2, 3, 8)) for _ in range(2)))


def test_what_is_measured_are_the_bytes_of_all_layers(model: Any) -> None:
    """Law: one entry a layer, none with a window, which together are the bytes of a token's place, however many of the
    places hold one."""
    cache = make_prompt_cache(model)
    read(model, cache, list(range(10, 26)))
    layers = _layout_of(cache, 16).layers

    assert len(layers) == tiny.LAYERS
    assert sum(layer.token_bytes for layer in layers) * cache[0].keys.shape[2] == MlxCaches().nbytes(cache)
    assert {layer.window_tokens for layer in layers} == {None}
