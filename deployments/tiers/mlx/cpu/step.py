"""Steps of Llama-like models on the CPU of a Linux machine: one call of a C extension in the place of MLX's many.

The extension (`step.c`) goes through all layers in float32 on threads of its own; weights, keys and values stay where
MLX has them. It computes at once, MLX late, so no step is begun before it is wanted (`generators.py`). What it gains:
`docs/decisions/040-cpu-extension.md`. Invariants (engine thread only): keys and values are written behind what a row
holds; before it is used, a step is held against MLX's, and may differ by rounding alone.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from deployments.tiers.lazy_mlx import mx
from deployments.tiers.mlx.decoding.ragged import Lengths, RaggedCache
from deployments.tiers.mlx.decoding.ragged_batch import Computer

_LOG = logging.getLogger(__name__)

_FAMILIES = ("mlx_lm.models.llama", "mlx_lm.models.qwen2", "mlx_lm.models.qwen3")
# What the processor must have, the library for it, and how many floats a register has. `setup.py` builds them.
_KINDS = (
    (frozenset({"avx512f", "fma"}), "_step_avx512.abi3.so", 16),
    (frozenset({"avx2", "fma"}), "_step_avx2.abi3.so", 8),
)
_SIZE_MAX, _SIZE_REGISTERS = 256, 4  # of a head: the largest, and of how many registers it is a multiple
_PLACES = 512  # the table of places grows by so many at a time
_CHECK_TOKENS = (1, 2, 3)
_DIFFERENCE_MAX = 1e-3  # of the largest logit

_Array: TypeAlias = "np.ndarray[Any, Any]"


class _KernelUnavailable(Exception):
    """Why MLX's own stays."""


class _TaskLayer(ctypes.Structure):
    """`struct layer` of step.c."""

    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            *("first_norm", "query", "query_bias", "key", "key_bias", "value", "value_bias", "output"),
            *("query_norm", "key_norm", "second_norm", "gate", "up", "down", "keys", "values"),
        )
    )


class _Task(ctypes.Structure):
    """`struct step` of step.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("layers", "embedding", "norm", "head", "cosines", "sines")),
        *((name, ctypes.c_void_p) for name in ("tokens", "held", "wanted", "work", "made")),
        *((name, ctypes.c_long) for name in ("layers_count", "sequences", "count", "places", "hidden", "heads")),
        *((name, ctypes.c_long) for name in ("groups", "size", "inner", "vocabulary", "wanted_count", "threads")),
        *((name, ctypes.c_float) for name in ("epsilon", "scale")),
    )


def _list_libraries() -> dict[int, Path]:
    """List the libraries for this processor by the floats of a register, the fastest first, or raise."""
    if os.environ.get("MLX_STACK_BLAS") == "stock":
        raise _KernelUnavailable("MLX_STACK_BLAS=stock asks for it")
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise _KernelUnavailable(f"there is none for {sys.platform} on {platform.machine()}")
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise _KernelUnavailable(f"the processor's features can't be read: {error}") from error
    has = set(next((line for line in lines if line.startswith("flags")), "").split())
    paths = {floats: Path(__file__).with_name(name) for needs, name, floats in _KINDS if needs <= has}
    if not paths:
        raise _KernelUnavailable("the processor has neither AVX2 nor AVX-512")
    built = {floats: path for floats, path in paths.items() if path.exists()}
    if not built:
        raise _KernelUnavailable("the extension wasn't built: install a C compiler, then this package again")
    return built


def explain_missing() -> str:
    """Explain why MLX's own code computes on this CPU; empty where the extension does."""
    try:
        _list_libraries()
    except _KernelUnavailable as reason:
        return str(reason)
    return ""


def build_step(model: Any, threads: int = 1) -> Computer | None:
    """Build the step of a model that is loaded; None, with the reason in the log, where MLX's own stays."""
    try:
        return _build(model, threads)
    except _KernelUnavailable as reason:
        _LOG.info("steps are MLX's own: %s", reason)
        return None


def _build(model: Any, threads: int) -> _CpuStep:
    if mx.default_device() != mx.Device(mx.cpu):
        raise _KernelUnavailable("MLX has a GPU here")
    libraries = _list_libraries()
    _check_layers(model)
    layer = model.model.layers[0]
    (wide, hidden), inner = layer.self_attn.q_proj.weight.shape, layer.mlp.gate_proj.weight.shape[0]
    size = wide // layer.self_attn.n_heads
    fitting = [
        path
        for floats, path in libraries.items()
        if size <= _SIZE_MAX and not (size % (_SIZE_REGISTERS * floats) or hidden % floats or inner % floats)
    ]
    if not fitting:
        raise _KernelUnavailable(f"heads of {size} and layers of {hidden} and {inner} numbers don't fit the registers")
    step = _CpuStep(model, fitting[0], threads)
    _check(step, model)
    return step


class _CpuStep:
    """The step of one model, computed by a library with so many threads."""

    def __init__(self, model: Any, library: Path, threads: int) -> None:
        try:
            self._run = ctypes.CDLL(str(library)).make_step
        except (OSError, AttributeError) as error:
            raise _KernelUnavailable(str(error)) from error
        self._run.restype, self._run.argtypes = None, (ctypes.POINTER(_Task),)
        inner, first = model.model, model.model.layers[0]
        attention, self._rope = first.self_attn, first.self_attn.rope
        self._weights: list[_Array] = []  # held as long as there are pointers to them
        self._layers = (_TaskLayer * len(inner.layers))(*map(self._describe, inner.layers))
        head = inner.embed_tokens if model.args.tie_word_embeddings else model.lm_head
        self._task = _Task(
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
            threads=threads,
            epsilon=inner.norm.eps,
            scale=attention.scale,
        )
        self._cosines = self._sines = np.empty((0, self._task.size // 2), np.float32)
        self._tokens_end = inner.embed_tokens.weight.shape[0]

    def read(
        self, tokens: Any, lengths: Lengths, caches: Sequence[RaggedCache], wanted: Sequence[int] | None = None
    ) -> Any:
        """Read tokens, (sequences, count), behind what the caches hold; return the logits behind each, (sequences,
        count, vocabulary), or, (wanted, vocabulary), behind the `wanted`: numbers that rise in all of them, sequence by
        sequence. The lengths stay as they are. Raises IndexError for a token that the model doesn't have."""
        if wanted is not None:
            return mx.array(self._compute(tokens, lengths, caches, np.array(wanted, np.int64)))
        made = self._compute(tokens, lengths, caches, np.arange(tokens.size))
        return mx.array(made.reshape(*tokens.shape, -1))

    def _compute(self, tokens: Any, lengths: Lengths, caches: Sequence[RaggedCache], wanted: _Array) -> _Array:
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
        self._run(task)
        return made

    def _describe(self, layer: Any) -> _TaskLayer:
        attention, mlp = layer.self_attn, layer.mlp
        made = _TaskLayer(
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
        if weights.dtype != mx.float32:
            raise _KernelUnavailable(f"its weights are {weights.dtype}, not float32")
        view = np.ascontiguousarray(np.asarray(weights))
        self._weights.append(view)
        return int(view.ctypes.data)

    def _reserve_places(self, count: int) -> None:
        """Let the table have a line for so many places. What turns a one and a zero gives cosine and sine."""
        known, half = len(self._cosines), self._task.size // 2
        if count <= known:
            return
        more = -(-(count - known) // _PLACES) * _PLACES
        unit = mx.concatenate([mx.ones((1, 1, more, half)), mx.zeros((1, 1, more, half))], axis=-1)
        turned = np.asarray(self._rope(unit, offset=known))[0, 0]
        self._cosines = np.concatenate([self._cosines, turned[:, :half]])
        self._sines = np.concatenate([self._sines, turned[:, half:]])


def _view_caches(caches: Sequence[RaggedCache]) -> list[_Array]:
    """View keys and values, one layer after the other, where the caches have them."""
    arrays = [one for cache in caches for one in cache.state]
    mx.eval(arrays)
    views = list(map(np.asarray, arrays))
    if all(one.flags.c_contiguous for one in views):
        return views
    for cache in caches:  # some rows were let go
        cache.keys, cache.values = map(mx.contiguous, cache.state)
    return _view_caches(caches)


def _check_layers(model: Any) -> None:
    """Raise `_KernelUnavailable` where its layers aren't those that are computed here."""
    import mlx.nn as nn

    if type(model).__module__ not in _FAMILIES:
        raise _KernelUnavailable(f"{type(model).__module__} isn't one of {', '.join(_FAMILIES)}")
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        biased = [attention.q_proj, attention.k_proj, attention.v_proj]
        plain = [attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj]
        if any(type(one) is not nn.Linear for one in (*biased, *plain)) or type(model.model.embed_tokens) is not (
            nn.Embedding
        ):
            raise _KernelUnavailable("its weights are quantized, or have an adapter")
        if any("bias" in one for one in plain) or getattr(layer, "use_sliding", False):
            raise _KernelUnavailable("its layers have more than these")


def _check(step: _CpuStep, model: Any) -> None:
    lengths, tokens = Lengths([0]), mx.array([_CHECK_TOKENS])
    caches = [RaggedCache(lengths) for _ in model.model.layers]
    step.read(tokens[:, :-1], lengths, caches, ())
    lengths.set([tokens.shape[1] - 1])
    mine = np.asarray(step.read(tokens[:, -1:], lengths, caches))[0, -1]
    theirs = np.asarray(model(tokens))[0, -1]
    if not np.abs(mine - theirs).max() <= _DIFFERENCE_MAX * np.abs(theirs).max():
        raise _KernelUnavailable("it computes something else than the model does")
