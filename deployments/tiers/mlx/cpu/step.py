"""A step of a model on the CPU of a Linux machine as one call, in the place of MLX's many: `build_step` makes it.

MLX's CPU build makes some twenty operations of a layer and hands over each of them; of a step of SmolLM2-135M that was
half the time. `step.h` goes through all layers by itself: products by `few_rows.c`, attention and the gate as they are
in this folder, shared out among the same threads. Weights, keys and values stay where MLX has them.

    Rows ──▶ Step ──▶ step.h        Llama's layers in float32 (mlx-lm's `llama`, `qwen2`, `qwen3`), `LINES_MAX` tokens
        └──▶ MLX                    every other model, adapters, quantized weights, a GPU

Milliseconds of a step, its logits and the most likely tokens; MLX with the kernels of this folder → this
(2026-11-25, 2 × AMD EPYC, Linux, two threads):

    sequences × tokens        1 × 1        1 × 8        1 × 32        8 × 1        4 × 24
    SmolLM2, behind 64        44.6 → 21.2  60.0 → 29.4  120 → 79      58.1 → 30.6  246 → 188
    SmolLM2, behind 1,700     46.5 → 21.5  73.2 → 37.6  159 → 116     83.6 → 47.8

MLX computes late and this at once: when it returns, all is there. So nothing is begun ahead of it (`generators.py`).

Engine thread only. What must never happen: keys or values that are written where somebody else's are: behind what a
row holds there is nobody's, since whatever else shares the memory ends before (`ragged.py`). A result that differs from
MLX's by more than rounding: what a model computes is held against it before it is used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from deployments.models import blas
from deployments.tiers.mlx.cpu.binary import (
    Kernels,
    NotHere,
    StepTask,
    TaskLayer,
    check_place,
    find_features,
    load_kernels,
)
from deployments.tiers.mlx.decoding.ragged import Lengths, RaggedCache

__all__ = ["LINES_MAX", "Step", "build_step"]

LINES_MAX = 1024  # tokens of a step, of all sequences; MLX takes more of them
_FAMILIES = ("mlx_lm.models.llama", "mlx_lm.models.qwen2", "mlx_lm.models.qwen3")
_SIZE_MAX = 256  # of a head
_STEP_REGISTERS = 4  # it must be a multiple of so many
_PLACES = 512  # the table of places grows by so many at a time
_CHECK_TOKENS = (1, 2, 3, 5)
_DIFFERENCE_MAX = 1e-3  # of the largest logit

Array: TypeAlias = "np.ndarray[Any, Any]"


def build_step(model: Any) -> Step:
    """Build the step of a model that is loaded. Raises `NotHere` with the reason where MLX's own stays."""
    check_place()
    _check_layers(model)
    attention = model.model.layers[0].self_attn
    size = attention.q_proj.weight.shape[0] // attention.n_heads
    kinds = [one for one in load_kernels(find_features()) if size % (_STEP_REGISTERS * one.floats) == 0]
    kinds = [one for one in kinds if attention.q_proj.weight.shape[1] % one.floats == 0]
    if not kinds or size > _SIZE_MAX:
        raise NotHere(f"heads of {size} numbers don't fit the processor's registers")
    step = Step(model, kinds[0], *_find_functions())
    _check(step, model)
    return step


class Step:
    """The step of one model; `multiply` and `share` are addresses of functions of `few_rows.c`."""

    lines_max = LINES_MAX

    def __init__(self, model: Any, kernels: Kernels, multiply: int, share: int) -> None:
        inner, self._run = model.model, kernels.step
        first = inner.layers[0]
        attention, self._rope = first.self_attn, first.self_attn.rope
        self._weights: list[Array] = []  # held as long as there are pointers to them
        self._layers = (TaskLayer * len(inner.layers))(*map(self._describe, inner.layers))
        head = inner.embed_tokens if model.args.tie_word_embeddings else model.lm_head
        self._task = StepTask(
            multiply=multiply,
            share=share,
            layers=ctypes.addressof(self._layers),
            embedding=self._take(inner.embed_tokens.weight),
            norm=self._take(inner.norm.weight),
            head=self._take(head.weight),
            layers_count=len(inner.layers),
            hidden=attention.q_proj.weight.shape[1],
            heads=attention.n_heads,
            groups=attention.n_kv_heads,
            size=attention.q_proj.weight.shape[0] // attention.n_heads,
            inner=first.mlp.gate_proj.weight.shape[0],
            vocabulary=head.weight.shape[0],
            epsilon=inner.norm.eps,
            scale=attention.scale,
        )
        self._cosines = self._sines = np.empty((0, self._task.size // 2), np.float32)
        self._tokens_end = inner.embed_tokens.weight.shape[0]

    def read(self, tokens: Any, lengths: Lengths, caches: Sequence[RaggedCache]) -> Any:
        """Read tokens, (sequences, count), behind what the caches hold; return the logits behind each, (sequences,
        count, vocabulary). The lengths stay as they are. Raises IndexError for a token that the model doesn't have."""
        import mlx.core as mx

        made = self._compute(tokens, lengths, caches, np.arange(tokens.size))
        return mx.array(made.reshape(*tokens.shape, -1))

    def fill(self, tokens: Any, lengths: Lengths, caches: Sequence[RaggedCache], wanted: Sequence[int] = ()) -> Any:
        """Read tokens of which keys and values are wanted, and the logits behind a few: of `wanted`, numbers that rise
        in all of them, sequence by sequence. Return (wanted, vocabulary), None for none."""
        import mlx.core as mx

        made = self._compute(tokens, lengths, caches, np.array(wanted, np.int64))
        return mx.array(made) if wanted else None

    def _compute(self, tokens: Any, lengths: Lengths, caches: Sequence[RaggedCache], wanted: Array) -> Array:
        task = self._task
        numbers = np.ascontiguousarray(np.asarray(tokens), np.int64)
        held = np.asarray(lengths.values, np.int64)
        sequences, count = numbers.shape
        if numbers.min() < 0 or numbers.max() >= self._tokens_end:
            raise IndexError(f"tokens from {numbers.min()} to {numbers.max()}, and the model has {self._tokens_end}")
        if len(wanted) and not (wanted[0] >= 0 and wanted[-1] < numbers.size and (np.diff(wanted) > 0).all()):
            raise IndexError(f"wanted are {wanted.tolist()}, which don't rise in {numbers.size} tokens")
        made = np.empty((len(wanted), task.vocabulary), np.float32)
        for cache in caches:
            cache.reserve(count, (sequences, task.groups, task.size))
        self._reserve_places(lengths.longest + count)
        views = _view_caches(caches)
        for layer, keys, values in zip(self._layers, views[::2], views[1::2], strict=True):
            layer.keys, layer.values = keys.ctypes.data, values.ctypes.data
        width = 2 * (task.hidden + (task.heads + task.groups) * task.size + task.inner)
        work = np.empty(sequences * count * width, np.float32)
        task.tokens, task.held, task.work = numbers.ctypes.data, held.ctypes.data, work.ctypes.data
        task.wanted, task.wanted_count, task.made = wanted.ctypes.data, len(wanted), made.ctypes.data
        task.cosines, task.sines = self._cosines.ctypes.data, self._sines.ctypes.data
        task.sequences, task.count, task.places = sequences, count, views[0].shape[2]
        self._run(ctypes.byref(task))
        return made

    def _describe(self, layer: Any) -> TaskLayer:
        attention, mlp = layer.self_attn, layer.mlp
        made = TaskLayer(
            first_norm=self._take(layer.input_layernorm.weight),
            second_norm=self._take(layer.post_attention_layernorm.weight),
            output=self._take(attention.o_proj.weight),
            gate=self._take(mlp.gate_proj.weight),
            up=self._take(mlp.up_proj.weight),
            down=self._take(mlp.down_proj.weight),
        )
        for name, linear in (("query", attention.q_proj), ("key", attention.k_proj), ("value", attention.v_proj)):
            setattr(made, name, self._take(linear.weight))
            setattr(made, f"{name}_bias", self._take(linear.bias) if "bias" in linear else None)
        if "q_norm" in attention:
            made.query_norm, made.key_norm = self._take(attention.q_norm.weight), self._take(attention.k_norm.weight)
        return made

    def _take(self, weights: Any) -> int:
        """Return where weights are, and hold them."""
        import mlx.core as mx

        if weights.dtype != mx.float32:
            raise NotHere(f"its weights are {weights.dtype}, not float32")
        view = np.ascontiguousarray(np.asarray(weights))
        self._weights.append(view)
        return int(view.ctypes.data)

    def _reserve_places(self, count: int) -> None:
        """Let the table have a line for so many places. What turns a one and a zero gives cosine and sine."""
        import mlx.core as mx

        known, half = len(self._cosines), self._task.size // 2
        if count <= known:
            return
        more = -(-(count - known) // _PLACES) * _PLACES
        unit = mx.concatenate([mx.ones((1, 1, more, half)), mx.zeros((1, 1, more, half))], axis=-1)
        turned = np.asarray(self._rope(unit, offset=known))[0, 0]
        self._cosines = np.concatenate([self._cosines, turned[:, :half]])
        self._sines = np.concatenate([self._sines, turned[:, half:]])


def _view_caches(caches: Sequence[RaggedCache]) -> list[Array]:
    """View keys and values, one layer after the other, where the caches have them."""
    import mlx.core as mx

    views = list(_view(caches))
    if not all(one.flags.c_contiguous for one in views):  # some rows were let go
        for cache in caches:
            cache.keys, cache.values = mx.contiguous(cache.keys), mx.contiguous(cache.values)
        views = list(_view(caches))
    return views


def _view(caches: Sequence[RaggedCache]) -> Iterator[Array]:
    import mlx.core as mx

    arrays = [one for cache in caches for one in (cache.keys, cache.values)]
    mx.eval(arrays)
    return map(np.asarray, arrays)


def _check_layers(model: Any) -> None:
    """Raise `NotHere` where its layers aren't those that are computed here."""
    import mlx.nn as nn

    if type(model).__module__ not in _FAMILIES:
        raise NotHere(f"{type(model).__module__} isn't one of {', '.join(_FAMILIES)}")
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        biased = [attention.q_proj, attention.k_proj, attention.v_proj]
        plain = [attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj]
        if any(type(one) is not nn.Linear for one in (*biased, *plain)) or type(model.model.embed_tokens) is not (
            nn.Embedding
        ):
            raise NotHere("its weights are quantized, or have an adapter")
        if any("bias" in one for one in plain) or getattr(layer, "use_sliding", False):
            raise NotHere("its layers have more than these")


def _find_functions() -> tuple[int, int]:
    """Find what multiplies, and what shares out. Raises `NotHere`."""
    try:
        path = blas.find_few_rows()
        if path is None:
            raise NotHere("there is no library for products of few rows")
        library = ctypes.CDLL(str(path))
    except (blas.NoFastLibrary, OSError) as error:
        raise NotHere(str(error)) from error
    multiply, share = (ctypes.cast(library[name], ctypes.c_void_p).value for name in ("cblas_sgemm", "share_few_rows"))
    assert multiply is not None
    assert share is not None
    return multiply, share


def _check(step: Step, model: Any) -> None:
    """Hold it against MLX: a few tokens, the last behind the others."""
    import mlx.core as mx

    lengths, tokens = Lengths([0]), mx.array([_CHECK_TOKENS])
    caches = [RaggedCache(lengths) for _ in model.model.layers]
    step.fill(tokens[:, :-1], lengths, caches)
    lengths.set([tokens.shape[1] - 1])
    mine = np.asarray(step.read(tokens[:, -1:], lengths, caches))[0, -1]
    theirs = np.asarray(model(tokens))[0, -1]
    if not np.abs(mine - theirs).max() <= _DIFFERENCE_MAX * np.abs(theirs).max():
        raise NotHere("it computes something else than the model does")
