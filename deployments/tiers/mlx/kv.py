"""What this server does with mlx-lm's caches of keys and values: copy, cut, measure. Engine thread only.

mlx-lm computes lazily: a cache that was just taken out of a batch is a formula over the batch's own arrays, and keeps
all of them alive. `detach` computes it, so that what is kept is as large as it says and no more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from deployments.memory.prefill_scores import estimate_scores_bytes
from deployments.memory.sensors.computing import find_computing
from deployments.tiers.mlx.memory_budget import Layer, Layout

__all__ = ["MlxCaches", "detach", "flatten", "layout_of", "scratch_bytes"]

# Where the model's configuration doesn't say its sizes.
_SCRATCH_UNKNOWN_BYTES = 256 << 20


class MlxCaches:
    """`prompt_cache.CacheOps` over mlx-lm's caches."""

    def nbytes(self, cache: Any) -> int:
        """Return the memory of all layers."""
        return sum(int(layer.nbytes) for layer in cache)

    def is_trimmable(self, cache: Any) -> bool:
        """Return mlx-lm's own answer; a window that has moved on can't go back, nor can a chunk (Llama 4's)."""
        return all(layer.is_trimmable() and not getattr(layer, "start_position", 0) for layer in cache)

    def copy_shortened(self, cache: Any, tokens: int) -> Any:
        """Copy and cut; the copy shares the original's arrays until one of them is written to."""
        shorter = copy.deepcopy(cache)
        for layer in shorter if tokens else ():
            layer.trim(tokens)
        return shorter

    def cut(self, cache: Any, tokens: int) -> Any:
        """Copy the first tokens of plain caches; others hold more than tokens."""
        from mlx_lm.models.cache import KVCache

        if any(type(one) is not KVCache for one in flatten(cache)):
            return None
        return detach([_cut_layer(layer, tokens) for layer in cache])


def detach(cache: Any) -> Any:
    """Compute the cache, and return it."""
    import mlx.core as mx

    mx.eval([layer.state for layer in cache])
    return cache


def layout_of(cache: Any, tokens: int) -> Layout:
    """Measure what each layer keeps, on a cache of `tokens` tokens."""
    return Layout(tuple(_measure_layer(one, tokens) for one in flatten(cache)))


def flatten(caches: Iterable[Any]) -> Iterator[Any]:
    """Yield the caches, and in place of one that is made of several its parts."""
    for one in caches:
        yield from flatten(one.caches) if hasattr(one, "caches") else (one,)


def _cut_layer(layer: Any, tokens: int) -> Any:
    import mlx.core as mx
    from mlx_lm.models.cache import CacheList, KVCache

    if hasattr(layer, "caches"):
        return CacheList(*(_cut_layer(one, tokens) for one in layer.caches))
    return KVCache.from_state((*(mx.contiguous(one[..., :tokens, :]) for one in (layer.keys, layer.values)), tokens))


def _measure_layer(one: Any, tokens: int) -> Layer:
    if not hasattr(one, "offset"):  # a recurrent state
        return Layer(0, fixed_bytes=int(one.nbytes))
    window = getattr(one, "max_size", None)
    if hasattr(one, "chunk_size"):  # Llama 4's, which grows by a step before it is cut
        window = one.chunk_size + one.step
    # There may be more places than tokens, since caches grow by steps, and fewer, in a window.
    keys = getattr(one, "keys", None)
    places = tokens if keys is None else keys.shape[2]
    return Layer(-(-int(one.nbytes) // places), int(window) if window else None)


def scratch_bytes(model: Any, step_tokens: int, *, forced: bool = False) -> tuple[int, int]:
    """Estimate the most that one prefill step needs for values in between, in float32: in any case, and for each token
    of the context.

    The first is a few rows of the widest layers; the second the attention scores, where no fused kernel spares them
    (on a CPU, and for some sizes of a head on a GPU: `memory/prefill_scores.py`). `forced`: those kernels are used that
    must be asked for.
    """

    args = _read_args(getattr(model, "args", None))
    hidden, heads = args("hidden_size"), args("num_attention_heads")
    if not hidden or not heads:
        return _SCRATCH_UNKNOWN_BYTES, 0
    step_bytes = 4 * step_tokens * (8 * hidden + 3 * (args("intermediate_size") or 4 * hidden))
    size = args("head_dim") or hidden // heads
    fixed_bytes, token_bytes = estimate_scores_bytes(heads, size, step_tokens, find_computing(), forced=forced)
    return step_bytes + fixed_bytes, token_bytes


def _read_args(args: Any) -> Callable[[str], int]:
    """Return what reads a number of a model's arguments, wherever they have those of its text layers; 0 for none."""
    inner = getattr(args, "text_config", None)

    def read(name: str) -> int:
        for one in (args, inner):
            found = one.get(name) if isinstance(one, Mapping) else getattr(one, name, None)
            if type(found) is int and found > 0:
                return found
        return 0

    return read
