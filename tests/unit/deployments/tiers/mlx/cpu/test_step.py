"""A step that is computed at once is the model's own, only sooner."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.models import blas
from deployments.tiers.mlx.cpu import step as module
from deployments.tiers.mlx.cpu.binary import NotHere, find_features, load_kernels
from deployments.tiers.mlx.cpu.step import Step, build_step
from deployments.tiers.mlx.decoding.ragged import Lengths, RaggedCache
from tests.support.kernels import only_here
from tests.support.random_models import MODELS, VOCABULARY, build_model


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    blas.preload()
    return {kind: build_model(kind) for kind in MODELS}


def build(model: Any, kind: int) -> Step:
    """With one of the kinds of registers that the processor has and that fit."""
    attention = model.model.layers[0].self_attn
    size = attention.q_proj.weight.shape[0] // attention.n_heads
    kinds = [one for one in load_kernels(find_features()) if size % (4 * one.floats) == 0]
    return Step(model, kinds[kind % len(kinds)], *module._find_functions())


@pytest.mark.model
@only_here
class TestStep:
    @given(
        which=st.sampled_from(sorted(MODELS)),
        kind=st.integers(0, 1),
        threads=st.integers(1, 3),
        seed=st.integers(0, 1 << 32),
        data=st.data(),
    )
    @settings(max_examples=120, deadline=None)
    def test_it_is_what_the_model_says(
        self, models: dict[str, Any], which: str, kind: int, threads: int, seed: int, data: st.DataObject
    ) -> None:
        """Law: whatever the model, the sequences, their lengths and how many tokens are read of each, logits, keys and
        values are MLX's but for rounding, and nothing is written where no place of a row is."""
        import mlx.core as mx

        model, random = models[which], np.random.default_rng(seed)
        step, openblas = build(model, kind), ctypes.CDLL(str(blas.prepare(progress=False)))
        sequences = data.draw(st.integers(1, 5))
        held = [data.draw(st.sampled_from([0, 1, 5, 200, 255, 256, 700])) for _ in range(sequences)]
        mine, theirs = (_fill_caches(model, held) for _ in range(2))
        before = openblas.scipy_openblas_get_num_threads()
        openblas.scipy_openblas_set_num_threads(threads)
        try:
            for _ in range(2):
                count = data.draw(st.sampled_from([1, 2, 3, 7, 13, 40]))
                tokens = mx.array(random.integers(0, VOCABULARY, (sequences, count)))
                old = [] if mine[1][0].empty() else [np.array(one) for cache in mine[1] for one in cache.state]
                made, right = step.read(tokens, *mine), model(tokens, cache=theirs[1])
                np.testing.assert_allclose(np.asarray(made), np.asarray(right), atol=2e-4 * np.abs(right).max().item())
                _compare(mine, theirs, count, old)
                kept = [length + data.draw(st.integers(0, count)) for length in mine[0].values]
                mine[0].set(kept)
                theirs[0].set(kept)
        finally:
            openblas.scipy_openblas_set_num_threads(before)

    def test_what_is_only_read_is_read_alike(self, models: dict[str, Any]) -> None:
        """Law: without logits keys and values are the same, bit by bit."""
        import mlx.core as mx

        step = build_step(models["biases"])
        read, filled = (_fill_caches(models["biases"], [3, 9]) for _ in range(2))
        tokens = mx.array([[4, 5, 6], [7, 8, 9]])
        step.read(tokens, *read)
        step.fill(tokens, *filled)

        for one, other in zip(read[1], filled[1], strict=True):
            assert mx.array_equal(one.keys, other.keys).item()
            assert mx.array_equal(one.values, other.values).item()

    @given(rows=st.lists(st.integers(0, 300), min_size=1, max_size=4), count=st.integers(1, 20), data=st.data())
    @settings(max_examples=40, deadline=None)
    def test_logits_of_a_few_are_those_among_all(
        self, models: dict[str, Any], rows: list[int], count: int, data: st.DataObject
    ) -> None:
        """Law: the logits behind the tokens that are wanted are what they are where all are, keys and values too."""
        import mlx.core as mx

        size = len(rows) * count
        wanted = sorted(data.draw(st.sets(st.integers(0, size - 1))))
        step = build_step(models["biases"])
        read, filled = (_fill_caches(models["biases"], rows) for _ in range(2))
        tokens = mx.array(np.random.default_rng(size).integers(0, VOCABULARY, (len(rows), count)))
        right, made = step.read(tokens, *read), step.fill(tokens, *filled, wanted)

        if wanted:
            right = np.asarray(right).reshape(size, -1)[wanted]
            np.testing.assert_allclose(np.asarray(made), right, atol=1e-5 * np.abs(right).max())
        else:
            assert made is None
        for one, other in zip(read[1], filled[1], strict=True):
            assert mx.array_equal(one.keys, other.keys).item()
            assert mx.array_equal(one.values, other.values).item()

    @pytest.mark.parametrize("wanted", [[-1], [2], [0, 0], [1, 0]])
    def test_what_there_is_not_can_t_be_wanted(self, models: dict[str, Any], wanted: list[int]) -> None:
        """Law: numbers that aren't of these tokens, or don't rise, are refused before anything is read."""
        import mlx.core as mx

        with pytest.raises(IndexError, match="wanted"):
            build_step(models["biases"]).fill(mx.array([[5, 6]]), *_fill_caches(models["biases"], [3]), wanted)

    @pytest.mark.parametrize("token", [-1, VOCABULARY, 1 << 30])
    def test_a_token_that_there_is_not_is_refused(self, models: dict[str, Any], token: int) -> None:
        """Law: nothing is read that isn't the model's, and the caches stay as they are."""
        import mlx.core as mx

        lengths, caches = _fill_caches(models["biases"], [3])
        before = np.array(caches[0].keys)
        with pytest.raises(IndexError, match=str(token)):
            build_step(models["biases"]).read(mx.array([[5, token]]), lengths, caches)

        np.testing.assert_array_equal(np.asarray(caches[0].keys), before)

    def test_rows_that_were_let_go_are_no_gap(self, models: dict[str, Any]) -> None:
        """Law: keys that lie in memory with gaps, as after a row has left, are read and written as they should."""
        import mlx.core as mx

        model, tokens = models["biases"], mx.array([[4, 5], [7, 8]])
        lengths, caches = _fill_caches(model, [300, 9, 20])
        for cache in caches:
            cache.select([1, 2], 20)
        lengths.set([9, 20])
        right = model(tokens, cache=caches)
        made = build_step(model).read(tokens, lengths, caches)

        np.testing.assert_allclose(np.asarray(made), np.asarray(right), atol=1e-4)

    @pytest.mark.parametrize("what", ["half", "quantized", "adapter", "bias", "size", "family", "else", "stock"])
    def test_what_it_is_not_for_is_mlx_s(self, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: weights, layers and heads of another kind, and a model that computes something else than its layers say,
        stay with MLX, and the reason says why."""
        import mlx.core as mx
        import mlx.nn as nn
        from mlx.utils import tree_map
        from mlx_lm.tuner.lora import LoRALinear

        model = build_model("biases")
        words = {
            "half": "float16",
            "quantized": "quantized",
            "adapter": "an adapter",
            "bias": "more than these",
            "size": "heads of 48",
            "family": "mlx_lm.models.phi3",
            "else": "something else",
            "stock": "stock",
        }
        if what == "half":
            model.update(tree_map(lambda one: one.astype(mx.float16), model.parameters()))
        elif what == "quantized":
            nn.quantize(model.model.layers[1].self_attn, group_size=32)
        elif what == "adapter":
            layer = model.model.layers[1].self_attn
            layer.q_proj = LoRALinear.from_base(layer.q_proj)
        elif what == "bias":
            model.model.layers[1].mlp.up_proj.bias = mx.zeros((100,))
        elif what == "size":
            monkeypatch.setitem(MODELS, "biases", ("llama", {"head_dim": 48}))
            model = build_model("biases")
        elif what == "family":
            monkeypatch.setattr(type(model), "__module__", "mlx_lm.models.phi3")
        elif what == "else":
            monkeypatch.setattr(
                type(model), "__call__", lambda self, tokens, **_: mx.zeros((1, tokens.shape[1], VOCABULARY))
            )
        else:
            monkeypatch.setenv("MLX_STACK_BLAS", "stock")

        with pytest.raises(NotHere, match=words[what]):
            build_step(model)

    def test_without_the_library_of_products_there_is_none(
        self, models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Law: whatever keeps that library from being used keeps a step from it."""

        def refuse() -> None:
            raise blas.NoFastLibrary("not ours")

        for find, words in ((lambda: None, "no library"), (refuse, "not ours")):
            monkeypatch.setattr(blas, "find_few_rows", find)
            with pytest.raises(NotHere, match=words):
                build_step(models["biases"])


def _fill_caches(model: Any, held: list[int]) -> tuple[Lengths, list[RaggedCache]]:
    """Caches whose rows hold so many tokens, the same ones each time."""
    import mlx.core as mx

    lengths = Lengths([0] * len(held))
    caches = [RaggedCache(lengths) for _ in model.layers]
    if longest := max(held):
        model(mx.array(np.random.default_rng(7).integers(0, VOCABULARY, (len(held), longest))), cache=caches)
        mx.eval([cache.state for cache in caches])
    lengths.set(held)
    return lengths, caches


def _compare(
    mine: tuple[Lengths, list[RaggedCache]], theirs: tuple[Lengths, list[RaggedCache]], count: int, old: list[Any]
) -> None:
    """Compare what was written with MLX's, and all else with what was there before."""
    made, right = ([np.asarray(one) for cache in caches for one in cache.state] for _, caches in (mine, theirs))
    for row, held in enumerate(mine[0].values):
        end = held + count
        for one, other in zip(made, right, strict=True):
            np.testing.assert_allclose(one[row, :, :end], other[row, :, :end], atol=1e-4)
        for one, before in zip(made, old, strict=bool(old)):
            np.testing.assert_array_equal(one[row, :, :held], before[row, :, :held])
            np.testing.assert_array_equal(one[row, :, end : before.shape[2]], before[row, :, end:])
